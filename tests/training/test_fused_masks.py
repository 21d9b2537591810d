import pytest
import torch
import transformers.masking_utils as masking
import transformers.models.gpt2.modeling_gpt2 as gpt2
import transformers.models.llama.modeling_llama as llama
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ruler.training.fused import skipped_masks

TOKENS = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])


def make_llama():
    sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, use_cache=False))


def make_gpt2():
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2, use_cache=False))


@pytest.fixture
def masks(monkeypatch):
    """The masks that attention is given; transformers believes that it is being captured, as on a GPU."""
    monkeypatch.setattr(masking, "is_tracing", lambda tensor=None: True)
    seen, attend = [], functional.scaled_dot_product_attention

    def spy(*args, attn_mask=None, **named):
        seen.append(attn_mask)
        return attend(*args, attn_mask=attn_mask, **named)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    return seen


@pytest.mark.parametrize(("make", "module"), [(make_llama, llama), (make_gpt2, gpt2)])
def test_a_captured_step_needs_no_mask_and_says_the_same(make, module, masks):
    model, own = make().eval(), module.create_causal_mask
    plain = model(input_ids=TOKENS).logits
    assert masks.pop() is not None  # what transformers does while a step is captured
    with skipped_masks(model):
        found = model(input_ids=TOKENS).logits
    assert masks == [None]
    torch.testing.assert_close(found, plain)
    assert module.create_causal_mask is own


def test_padding_still_has_its_mask(masks):
    model = make_llama().eval()
    attention = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    plain = model(input_ids=TOKENS, attention_mask=attention).logits
    with skipped_masks(model):
        found = model(input_ids=TOKENS, attention_mask=attention).logits
    assert len(masks) == 2
    assert all(mask is not None for mask in masks)
    torch.testing.assert_close(found, plain)


def test_models_get_their_function_back_even_if_the_work_fails():
    own = llama.create_causal_mask

    def fail():
        with skipped_masks(make_llama()):
            assert llama.create_causal_mask is not own
            raise KeyError("stopped")

    with pytest.raises(KeyError, match="stopped"):
        fail()
    assert llama.create_causal_mask is own
