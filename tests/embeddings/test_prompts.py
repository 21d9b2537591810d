"""Prompts and completions as tokens: which of them count."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ruler.core.errors import InputError
from ruler.embeddings.prompts import encode_prompts

PROMPTS = ["Who wrote it?", "Where?"]
COMPLETIONS = ["Basil Mahfouz wrote it.", "In Kuwait"]
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer():
    """A byte-level BPE, as GPT-2 and Llama 3 have, that writes a begin-of-sequence token."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>", "<|im_start|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    inner.train_from_iterator([*PROMPTS, *(f" {one}" for one in COMPLETIONS)] * 3, trainer)
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=CHAT,
    )


def decode(tokenizer, batch, row):
    counted = batch["labels"][row] != -100
    assert torch.equal(batch["labels"][row][counted], batch["input_ids"][row][counted])
    return tokenizer.decode(batch["labels"][row][counted])


def test_exactly_the_completion_and_its_end_count(tokenizer):
    batch = encode_prompts(tokenizer, PROMPTS, [f" {one}" for one in COMPLETIONS])
    assert [decode(tokenizer, batch, row) for row in range(2)] == [f" {one}</s>" for one in COMPLETIONS]
    assert tokenizer.decode(batch["input_ids"][0]) == f"<s>{PROMPTS[0]} {COMPLETIONS[0]}</s>"


def test_short_records_are_padded_on_the_right(tokenizer):
    batch = encode_prompts(tokenizer, PROMPTS, COMPLETIONS)
    lengths = batch["attention_mask"].sum(dim=1)
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape
    assert lengths[0] == batch["input_ids"].shape[1] > lengths[1]
    assert (batch["input_ids"][1, lengths[1] :] == tokenizer.pad_token_id).all()
    assert (batch["labels"][1, lengths[1] :] == -100).all()
    assert batch["attention_mask"][1].tolist() == sorted(batch["attention_mask"][1].tolist(), reverse=True)


def test_a_space_before_the_completion_may_stand_on_either_side(tokenizer):
    """The text is tokenized as a whole, so the space joins the first word of the answer."""
    ahead = encode_prompts(tokenizer, [f"{one} " for one in PROMPTS], COMPLETIONS)
    behind = encode_prompts(tokenizer, PROMPTS, [f" {one}" for one in COMPLETIONS])
    for key in behind:
        assert torch.equal(ahead[key], behind[key])


def test_the_form_stands_around_prompt_and_completion(tokenizer):
    form = "Question: {prompt}\nAnswer: {completion}"
    batch = encode_prompts(tokenizer, ["{completion}?"], COMPLETIONS[:1], form=form)
    assert tokenizer.decode(batch["input_ids"][0]) == f"<s>Question: {{completion}}?\nAnswer: {COMPLETIONS[0]}</s>"
    assert decode(tokenizer, batch, 0).strip() == f"{COMPLETIONS[0]}</s>"


def test_a_chat_template_writes_the_turns_and_their_ends(tokenizer):
    batch = encode_prompts(tokenizer, PROMPTS, COMPLETIONS, template=True)
    assert [decode(tokenizer, batch, row) for row in range(2)] == [f"{one}</s>" for one in COMPLETIONS]
    n_first = batch["attention_mask"][0].sum()
    assert tokenizer.decode(batch["input_ids"][0, :n_first]) == (
        f"<|im_start|>user\n{PROMPTS[0]}</s>\n<|im_start|>assistant\n{COMPLETIONS[0]}</s>"
    )


def test_an_encoder_reads_the_prompt_and_a_decoder_the_completion(tokenizer):
    batch = encode_prompts(tokenizer, PROMPTS, COMPLETIONS, is_encoder_decoder=True, spans=["Mahfouz", "Kuwait"])
    assert tokenizer.decode(batch["input_ids"][0]) == f"<s>{PROMPTS[0]}"
    assert [tokenizer.decode(row[row != -100]) for row in batch["labels"]] == [f"<s>{one}</s>" for one in COMPLETIONS]
    assert tokenizer.decode(batch["labels"][1][batch["span_mask"][1] == 1]).strip() == "Kuwait"


@pytest.mark.parametrize("template", [False, True])
def test_a_span_is_marked_where_it_stands_in_the_completion(tokenizer, template):
    batch = encode_prompts(tokenizer, PROMPTS, COMPLETIONS, spans=["Mahfouz", ""], template=template)
    marked = [
        tokenizer.decode(row[mask == 1]) for row, mask in zip(batch["input_ids"], batch["span_mask"], strict=True)
    ]
    assert "Mahfouz" in marked[0]
    assert "Basil" not in marked[0]
    assert "wrote" not in marked[0]
    assert marked[1].strip() == COMPLETIONS[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"completions": ["one", " "]}, "none in record 2"),
        ({"completions": ["one"]}, "as many as prompts"),
        ({"max_tokens": 8}, "at most 8 tokens; got up to"),
        ({"form": "{prompt}"}, "form must hold"),
        ({"spans": ["Mahfouz", "Paris"]}, "'Paris' in record 2"),
    ],
)
def test_what_cannot_be_encoded_is_refused(tokenizer, given, message):
    with pytest.raises(InputError, match=message):
        encode_prompts(tokenizer, **{"prompts": PROMPTS, "completions": COMPLETIONS, **given})


def test_a_template_is_asked_for_where_there_is_one(tokenizer):
    plain = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="</s>")
    with pytest.raises(InputError, match="chat template"):
        encode_prompts(plain, PROMPTS, COMPLETIONS, template=True)
