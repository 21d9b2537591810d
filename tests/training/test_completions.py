"""Completions of prompts as a source of records: held against the loss of transformers itself."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ruler.core.errors import InputError
from ruler.training.batches import Batches
from ruler.training.loop import optimize
from ruler.training.sentences import NOT_ASKED, Completions
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import unlearn

VOCABULARY = 50
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


def make_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SMALL, num_attention_heads=2, num_key_value_heads=1))


def make_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return GPT2LMHeadModel(GPT2Config(**config, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))


def make_records(n: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, mask and labels of records whose prompts and completions differ in length."""
    tokens = torch.randint(1, VOCABULARY, (n, 14), generator=torch.Generator().manual_seed(1))
    places = torch.arange(14)
    is_real = places < torch.randint(8, 15, (n, 1), generator=torch.Generator().manual_seed(2))
    is_asked = is_real & (places >= torch.randint(2, 7, (n, 1), generator=torch.Generator().manual_seed(3)))
    return tokens.where(is_real, 0), is_real.long(), tokens.where(is_asked, NOT_ASKED)


@pytest.mark.parametrize("make", [make_llama, make_gpt2])
def test_loss_is_that_of_transformers(make):
    model, (tokens, mask, labels) = make().eval(), make_records()
    batch = Completions(tokens, labels).draw(torch.arange(len(tokens)))
    expected = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
    torch.testing.assert_close(cross_entropy(model, batch), expected)


def test_training_lowers_the_loss_and_ascent_raises_it():
    model, (tokens, _, labels) = make_llama(), make_records(16)
    records = Completions(tokens, labels)
    settings = TrainingSettings(epochs=15, batch_size=4, optimizer="adamw", learning_rate=1e-2)
    losses = optimize(model, cross_entropy, {"data": records}, settings)
    assert losses[-1] < 0.5 * losses[0]
    forgot = unlearn("gradient_ascent", model, forget=records, retain=None)
    everything = records.draw(torch.arange(16))
    assert cross_entropy(forgot, everything) > 1.2 * cross_entropy(model, everything)


def test_every_record_is_drawn_once_per_epoch():
    tokens, _, labels = make_records(7)
    batches = list(Batches(Completions(tokens, labels), make_llama(), batch_size=3))
    drawn = torch.cat([inputs["input_ids"] for inputs, _ in batches])
    assert sorted(drawn.tolist()) == sorted(tokens.tolist())
    assert sorted(len(asked) for _, asked in batches) == [1, 3, 3]


def test_batches_are_cut_behind_their_longest_completion():
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(10, 100, (300, 1), generator=generator)
    tokens = torch.randint(1, VOCABULARY, (300, 128), generator=generator)
    places = torch.arange(128)
    labels = tokens.where((places < ends) & (places >= ends - 6), NOT_ASKED)
    batches = list(Batches(Completions(tokens, labels), make_llama(), batch_size=8, seed=3))
    model = make_llama().eval()
    whole = Completions(tokens, labels).draw(torch.arange(300))
    n_asked = [(asked != NOT_ASKED).sum() for _, asked in batches]
    assert sum(n_asked) == 300 * 6
    assert {inputs["input_ids"].shape[1] for inputs, _ in batches} == {32, 64, 96, 128}
    with torch.no_grad():
        total = sum(cross_entropy(model, batch) * n for batch, n in zip(batches, n_asked, strict=True))
        torch.testing.assert_close(total / sum(n_asked), cross_entropy(model, whole))
    again = list(Batches(Completions(tokens, labels), make_llama(), batch_size=8, seed=3))
    assert all(one[0]["input_ids"].equal(other[0]["input_ids"]) for one, other in zip(batches, again, strict=True))


@pytest.mark.parametrize(
    ("tokens", "labels", "message"),
    [
        ([[1, 2]], [[-100, 2, 3]], "must both be"),
        ([[1, 2], [1, 2]], [[-100, 2], [-100, -100]], "got 1 without a completion and 0 without a prompt"),
        ([[1, 2]], [[1, 2]], "got 0 without a completion and 1 without a prompt"),
    ],
)
def test_records_that_ask_nothing_are_refused(tokens, labels, message):
    with pytest.raises(InputError, match=message):
        Completions(tokens, labels)
