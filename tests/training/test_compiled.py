import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ruler.training.compiled import compiled_blocks

SMALL = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3}


def test_blocks_are_as_before_afterwards_even_if_the_work_fails():
    model = LlamaForCausalLM(LlamaConfig(**SMALL, num_attention_heads=2))

    def list_changed():
        return [block for block in model.model.layers if "forward" in vars(block)]

    def fail():
        with compiled_blocks(model):
            raise KeyError(len(list_changed()))

    with pytest.raises(KeyError, match="3"):
        fail()
    assert not list_changed()


def test_a_model_without_blocks_is_left_alone():
    model = torch.nn.Linear(2, 2)
    with compiled_blocks(model):
        assert "forward" not in vars(model)


@pytest.mark.gpu
def test_compiled_blocks_compute_the_same_up_to_rounding():
    model = LlamaForCausalLM(LlamaConfig(**SMALL, num_attention_heads=2)).cuda().eval()
    for width in (8, 24):
        tokens = torch.randint(50, (4, width), device="cuda")
        expected = model(input_ids=tokens, use_cache=False).logits
        with compiled_blocks(model):
            found = model(input_ids=tokens, use_cache=False).logits
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
