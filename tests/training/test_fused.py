import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ruler.training.fused import fused_norms

SMALL = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3}


def make_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL, num_attention_heads=2))
    for norm in (module for module in model.modules() if type(module).__name__ == "LlamaRMSNorm"):
        norm.weight.data.uniform_(0.5, 2)
    return model


def list_changed(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_loss_and_gradients_are_the_same_up_to_rounding():
    tokens = torch.randint(50, (4, 9), generator=torch.Generator().manual_seed(1))
    plain, fused = make_llama(), make_llama()
    loss = plain(input_ids=tokens, labels=tokens).loss
    loss.backward()
    with fused_norms(fused):
        assert len(list_changed(fused)) == 7  # two of each block, and the last
        found = fused(input_ids=tokens, labels=tokens).loss
        found.backward()
    torch.testing.assert_close(found, loss)
    for (name, one), other in zip(plain.named_parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, msg=name, rtol=1e-4, atol=1e-6)


def test_layers_behind_a_norm_get_the_type_they_compute_in():
    model, states = make_llama(), torch.randn(2, 16)
    norm = model.model.norm
    with fused_norms(model):
        assert norm(states).dtype is torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            rounded = norm(states)
    torch.testing.assert_close(rounded, norm(states).bfloat16())


def test_norms_are_as_before_afterwards_even_if_the_work_fails():
    model = make_llama()

    def fail():
        with fused_norms(model):
            raise KeyError(len(list_changed(model)))

    with pytest.raises(KeyError, match="7"):
        fail()
    assert not list_changed(model)


def test_other_norms_are_left_alone():
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=8))
    for model in (gpt2, nn.Sequential(nn.RMSNorm(4))):
        with fused_norms(model):
            assert not list_changed(model)
