"""Tiny language models with random weights and a tokenizer, and tables of prompts and completions."""

import json

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from ruler.core.readers.pretrained import quiet_transformers

WORDS = [f"w{number}" for number in range(60)]
SPECIAL = ["<pad>", "</s>", "<s>", "<unk>", "user", "assistant"]
COUNTS = {"forget": 30, "retain": 60, "held_out": 60}
COMMON = {"vocab_size": len(SPECIAL) + len(WORDS), "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
KINDS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
}
CHAT = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def build(kind, seed=0, **changed):
    name, config, settings = KINDS[kind]
    torch.manual_seed(seed)
    return getattr(transformers, name)(getattr(transformers, config)(**COMMON | settings | changed)).eval()


def make_tokenizer():
    inner = Tokenizer(models.WordLevel({word: n for n, word in enumerate(SPECIAL + WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    named = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=CHAT, **named)


def save(model, folder, *, with_tokenizer=True):
    with quiet_transformers():
        model.save_pretrained(folder)
    if with_tokenizer:
        make_tokenizer().save_pretrained(folder)


def make_rows(side):
    generator = torch.Generator().manual_seed(list(COUNTS).index(side))

    def write(n):
        return " ".join(WORDS[word] for word in torch.randint(len(WORDS), (n,), generator=generator))

    lengths = torch.randint(2, 7, (COUNTS[side], 2), generator=generator).tolist()
    return [
        {"id": f"{side}-{n}", "question": write(n_prompt), "answer": write(n_completion)}
        for n, (n_prompt, n_completion) in enumerate(lengths)
    ]


def write_tables(folder, names=("question", "answer")):
    for side in COUNTS:
        keys = dict(zip(("question", "answer"), names, strict=True))
        rows = [{keys.get(key, key): value for key, value in row.items()} for row in make_rows(side)]
        (folder / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)))
