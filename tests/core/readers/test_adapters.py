"""LoRA adapters are merged as PEFT merges them, and what cannot be is refused in a line."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from ruler.core.errors import CheckpointError, FileFormatError
from ruler.core.readers.adapters import find_base, is_adapter, merge_adapter

transformers = pytest.importorskip("transformers")

GPT = {"vocab_size": 30, "n_embd": 16, "n_layer": 2, "n_head": 2, "tie_word_embeddings": False}
LLAMA = {
    "vocab_size": 30,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def build(kind):
    torch.manual_seed(0)
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT)).eval()
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).eval()


def adapt(kind, folder, **settings):
    """An adapter with random weights, saved; returns what PEFT's own merge gives."""
    peft = pytest.importorskip("peft")  # loads torch's compiler
    model = peft.get_peft_model(build(kind), peft.LoraConfig(**settings))
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_" in name or parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder, save_embedding_layers="embed_tokens" in settings["target_modules"])
    return model.merge_and_unload()


CASES = {
    "linear": ("llama", {"r": 4, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"]}),
    "rank-stabilised": ("llama", {"r": 4, "lora_alpha": 3, "target_modules": ["v_proj"], "use_rslora": True}),
    "alpha by module": (
        "llama",
        {
            "r": 4,
            "lora_alpha": 8,
            "target_modules": ["q_proj", "v_proj"],
            "rank_pattern": {"v_proj": 2},
            "alpha_pattern": {"layers.1.self_attn.q_proj": 24},
        },
    ),
    "embeddings": ("llama", {"r": 2, "lora_alpha": 4, "target_modules": ["embed_tokens", "o_proj"]}),
    "whole modules": ("llama", {"r": 2, "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "turned weights": ("gpt2", {"r": 3, "lora_alpha": 6, "target_modules": ["c_attn"], "fan_in_fan_out": True}),
    "biases": ("gpt2", {"r": 3, "target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "lora_only"}),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_peft(name, tmp_path):
    kind, settings = CASES[name]
    expected = adapt(kind, tmp_path, **settings).state_dict()
    model = build(kind)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert is_adapter(tmp_path)
    merge_adapter(model, tmp_path)
    found = model.state_dict()
    assert found.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(found[key], expected[key], rtol=1e-6, atol=1e-6)
    assert any(not torch.equal(before[key], found[key]) for key in found)


@pytest.fixture
def folder(tmp_path):
    adapt("llama", tmp_path / "adapter", r=2, target_modules=["q_proj"])
    return tmp_path / "adapter"


def change(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"peft_type": "IA3"}, "plain LoRA adapter; got 'IA3'"),
        ({"use_dora": True}, "got use_dora"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights 'pissa'"),
        ({"alpha_pattern": {"(a+)+$": 4}}, "must name modules plainly"),
        ({"lora_alpha": "8"}, "must scale its adapter by a number"),
        ({"lora_alpha": float("nan")}, "must scale its adapter by a number"),
    ],
)
def test_other_adapters_are_refused(folder, values, message):
    change(folder, **values)
    with pytest.raises(FileFormatError, match=message):
        merge_adapter(build("llama"), folder)


def test_pickled_weights_are_not_read(folder):
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    with pytest.raises(FileFormatError, match=r"as adapter_model\.safetensors; got adapter_model\.bin"):
        merge_adapter(build("llama"), folder)


def test_weights_that_do_not_fit_are_told(folder):
    path = folder / "adapter_model.safetensors"
    weights = load_file(path)
    name = min(weights)
    save_file({**weights, name: torch.zeros(2, 3)}, path)
    with pytest.raises(CheckpointError, match=r"for weights of \(16, 16\)|which the model or half"):
        merge_adapter(build("llama"), folder)
    save_file({key: value for key, value in weights.items() if key != name}, path)
    with pytest.raises(CheckpointError, match="half of the adapter lacks"):
        merge_adapter(build("llama"), folder)
    save_file({**weights, "base_model.model.extra": torch.zeros(1)}, path)
    with pytest.raises(CheckpointError, match="'extra', which the model lacks"):
        merge_adapter(build("llama"), folder)
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    wide = {f"{name}.lora_A.weight": torch.zeros(1, 1 << 20), f"{name}.lora_B.weight": torch.zeros(1 << 20, 1)}
    save_file(wide, path)  # their product would take four terabytes
    with pytest.raises(CheckpointError, match=r"of \(1048576, 1048576\) for weights of \(16, 16\)"):
        merge_adapter(build("llama"), folder)
    save_file({**weights, min(weights): torch.zeros(2, 16, dtype=torch.int64)}, path)
    with pytest.raises(FileFormatError, match="as real numbers"):
        merge_adapter(build("llama"), folder)
    save_file({"other": torch.zeros(1)}, path)
    with pytest.raises(FileFormatError, match="'other'"):
        merge_adapter(build("llama"), folder)


@pytest.mark.parametrize("named", ["../outside", "/etc", "meta-llama/Llama-3.2-1B", None, "adapter"])
def test_a_base_model_elsewhere_is_not_taken(folder, named):
    (folder.parent / "base").mkdir()
    change(folder, base_model_name_or_path=named)
    with pytest.raises(FileFormatError, match=r"Models are not fetched: name the folder .* models\.base"):
        find_base(folder, folder.parent)


def test_a_base_model_within_the_bundle_is_taken(folder):
    base = folder.parent / "base"
    build("llama").save_pretrained(base)
    change(folder, base_model_name_or_path="base")
    assert find_base(folder, folder.parent) == base.resolve()
