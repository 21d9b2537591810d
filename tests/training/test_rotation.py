import pytest
import torch
import transformers.models.llama.modeling_llama as llama
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from ruler.training import rotation
from ruler.training.rotation import fused_rotation, rotate


def draw(device="cpu", dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(2, 5, 3 * 12, generator=generator).to(device, dtype)
    queries = wide.view(2, 5, 3, 12).transpose(1, 2).requires_grad_()  # strides as a model's own
    keys = torch.randn(2, 1, 5, 12, generator=generator).to(device, dtype).requires_grad_()
    angles = torch.randn(1, 5, 6, generator=generator).repeat(1, 1, 2).to(device)
    return queries, keys, angles.cos(), angles.sin()


def compare(device, dtype, tolerance):
    queries, keys, cos, sin = draw(device, dtype)
    weight = torch.randn(2, 3, 5, 12, generator=torch.Generator().manual_seed(1)).to(device)

    def run(function):
        turned, other = function(queries, keys, cos, sin)
        loss = (turned.float() * weight).sum() + (other.float() ** 2 * weight[:, :1]).sum()
        return turned, other, *torch.autograd.grad(loss, (queries, keys))

    for found, wanted in zip(run(rotate), run(llama.apply_rotary_pos_emb), strict=True):
        torch.testing.assert_close(found.float(), wanted.float(), rtol=tolerance, atol=tolerance)


def test_without_a_gpu_it_is_the_models_own_function():
    compare("cpu", torch.float32, 1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_kernel_and_its_gradient_are_the_models_own_up_to_rounding(dtype, tolerance):
    compare("cuda", dtype, tolerance)


def make_llama():
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2))


def test_models_get_their_function_back_even_if_the_work_fails(monkeypatch):
    monkeypatch.setattr(rotation, "triton", object())
    own, model, tokens = llama.apply_rotary_pos_emb, make_llama(), torch.tensor([[1, 2, 3]])
    plain = model(input_ids=tokens).logits

    def fail():
        with fused_rotation(model):
            assert llama.apply_rotary_pos_emb is rotate
            torch.testing.assert_close(model(input_ids=tokens).logits, plain)
            raise KeyError("stopped")

    with pytest.raises(KeyError, match="stopped"):
        fail()
    assert llama.apply_rotary_pos_emb is own


def test_other_rotations_are_left_alone(monkeypatch):
    import transformers.models.gpt_neox.modeling_gpt_neox as neox

    monkeypatch.setattr(rotation, "triton", object())
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    model = GPTNeoXForCausalLM(GPTNeoXConfig(**sizes, num_attention_heads=2))

    def turn_partly(q, k, cos, sin, unsqueeze_dim=1):
        return q * cos.unsqueeze(unsqueeze_dim), k

    monkeypatch.setattr(neox, "apply_rotary_pos_emb", turn_partly)
    with fused_rotation(model):
        assert neox.apply_rotary_pos_emb is turn_partly


def test_without_triton_nothing_changes(monkeypatch):
    monkeypatch.setattr(rotation, "triton", None)
    own = llama.apply_rotary_pos_emb
    with fused_rotation(make_llama()):
        assert llama.apply_rotary_pos_emb is own
