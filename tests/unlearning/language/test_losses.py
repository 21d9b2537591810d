"""Losses of the methods for language models against their formulas, spelled out token by token in float64."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ruler.core.errors import InputError
from ruler.testing.methods import TinyLanguageModel, make_completions
from ruler.training.sentences import Completions, Preferences
from ruler.unlearning import (
    METHODS,
    CeUSettings,
    GradientDifferenceSettings,
    IdkDpoSettings,
    NpoSettings,
    RmuSettings,
    SatImpSettings,
    SimNpoSettings,
    UndialSettings,
    WgaSettings,
    draw_refusals,
)
from ruler.unlearning.language.losses import find_blocks, read_hidden

pytestmark = pytest.mark.usefixtures("one_thread")
N_TOKENS = 40
FORGET, RETAIN, REFUSAL = (make_completions(n, seed) for n, seed in ((5, 11), (7, 12), (5, 13)))


class Bigrams(nn.Module):
    """The next token's logits are a row of a table: everything can be computed by hand."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(N_TOKENS, N_TOKENS, generator=draw, dtype=torch.float64))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.table[input_ids]


ORIGINAL, STUDENT = Bigrams(0), Bigrams(1)


def list_tokens(source: Completions) -> list[list[tuple[int, int]]]:
    """Of each record the pairs (token before, token asked for)."""
    return [
        [(int(ids[place - 1]), int(ids[place])) for place in range(len(ids)) if labels[place] != -100]
        for ids, labels in zip(source.input_ids, source.labels, strict=True)
    ]


def log_p(model: Bigrams, pair: tuple[int, int]) -> float:
    row = model.table[pair[0]].tolist()
    return row[pair[1]] - math.log(sum(math.exp(value) for value in row))


def sum_losses(model: Bigrams, source: Completions) -> list[float]:
    return [-sum(log_p(model, pair) for pair in record) for record in list_tokens(source)]


def mean_token(source: Completions, value: Callable[[tuple[int, int]], float]) -> float:
    tokens = [pair for record in list_tokens(source) for pair in record]
    return sum(map(value, tokens)) / len(tokens)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


RETAINED = mean_token(RETAIN, lambda pair: -log_p(STUDENT, pair))


def expect_npo(beta: float) -> float:
    pairs = zip(sum_losses(STUDENT, FORGET), sum_losses(ORIGINAL, FORGET), strict=True)
    return mean([-2 / beta * log_sigmoid(beta * (now - before)) for now, before in pairs])


def expect_simnpo(beta: float, delta: float, weight: float) -> float:
    lengths = [len(record) for record in list_tokens(FORGET)]
    pairs = zip(sum_losses(STUDENT, FORGET), lengths, strict=True)
    return weight * mean([-2 / beta * log_sigmoid(beta * (loss / length - delta)) for loss, length in pairs])


def expect_dpo(beta: float) -> float:
    def rise(source: Completions) -> list[float]:
        pairs = zip(sum_losses(STUDENT, source), sum_losses(ORIGINAL, source), strict=True)
        return [now - before for now, before in pairs]

    pairs = zip(rise(FORGET), rise(REFUSAL), strict=True)
    return mean([-2 / beta * log_sigmoid(beta * (forget - refusal)) for forget, refusal in pairs])


def cross_entropy_to(model: Bigrams, pair: tuple[int, int], change: float) -> float:
    """Of the student to a model's distribution whose logit of the true token is changed."""
    row = model.table[pair[0]].tolist()
    row[pair[1]] += change
    total = sum(math.exp(value) for value in row)
    return -sum(math.exp(value) / total * log_p(STUDENT, (pair[0], token)) for token, value in enumerate(row))


def expect_ce_u(n_skipped: int) -> float:
    pairs = [pair for record in list_tokens(FORGET) for pair in record[n_skipped:]]
    return mean([cross_entropy_to(STUDENT, pair, -math.inf) for pair in pairs])


def weigh_satimp(pair: tuple[int, int]) -> float:
    p = math.exp(log_p(STUDENT, pair))
    return p**3 * (1 - p) ** 2 * -log_p(STUDENT, pair)


CASES: list[tuple[str, Any, float]] = [
    (
        "gradient_difference",
        GradientDifferenceSettings(retain_weight=0.7),
        0.7 * RETAINED - mean_token(FORGET, lambda pair: -log_p(STUDENT, pair)),
    ),
    ("npo", NpoSettings(), expect_npo(0.1) + RETAINED),
    ("npo", NpoSettings(beta=2.0, retain_weight=0.0), expect_npo(2.0)),
    ("simnpo", SimNpoSettings(), expect_simnpo(4.5, 0.0, 0.125) + RETAINED),
    ("simnpo", SimNpoSettings(beta=2.5, delta=1.0, forget_weight=0.5), expect_simnpo(2.5, 1.0, 0.5) + RETAINED),
    ("idk_dpo", IdkDpoSettings(), expect_dpo(0.1) + RETAINED),
    ("undial", UndialSettings(), mean_token(FORGET, lambda pair: cross_entropy_to(ORIGINAL, pair, -10.0))),
    ("ce_u", CeUSettings(), expect_ce_u(1)),
    ("ce_u", CeUSettings(n_skipped=0), expect_ce_u(0)),
    (
        "wga",
        WgaSettings(beta=2.0),
        RETAINED - mean_token(FORGET, lambda pair: -log_p(STUDENT, pair) * math.exp(2 * log_p(STUDENT, pair))),
    ),
    (
        "satimp",
        SatImpSettings(saturation=3.0, importance=2.0),
        RETAINED - 0.1 * mean_token(FORGET, weigh_satimp),
    ),
]


def draw(source: Any) -> Any:
    return source.draw(torch.arange(len(source)))


def compute(name: str, settings: Any, student: nn.Module, original: nn.Module = ORIGINAL) -> torch.Tensor:
    method = METHODS[name]
    forget = Preferences(FORGET, REFUSAL) if method.kind == "preferences" else FORGET
    sources = {"forget": forget, "retain": RETAIN}
    assert method.make_objective is not None
    return method.make_objective(original, settings)(student, *(draw(sources[side]) for side in method.reads))


def gradient_of(name: str, settings: Any) -> torch.Tensor:
    student = Bigrams(1)
    compute(name, settings, student).backward()  # type: ignore[no-untyped-call]
    assert student.table.grad is not None
    return student.table.grad


@pytest.mark.parametrize(("name", "settings", "expected"), CASES)
def test_the_loss_is_its_formula(name: str, settings: Any, expected: float) -> None:
    assert compute(name, settings, STUDENT).item() == pytest.approx(expected, rel=1e-12)


def test_npo_becomes_gradient_ascent_on_whole_records_as_beta_vanishes() -> None:
    student = Bigrams(1)
    logits = student(FORGET.input_ids)[:, :-1].transpose(1, 2)
    (-nn.functional.cross_entropy(logits, FORGET.labels[:, 1:], reduction="sum") / len(FORGET)).backward()
    ascent = student.table.grad
    found = gradient_of("npo", NpoSettings(beta=1e-9, retain_weight=0.0))
    torch.testing.assert_close(found, ascent, rtol=1e-6, atol=1e-12)
    slowed = gradient_of("npo", NpoSettings(beta=0.5, retain_weight=0.0))
    assert not torch.allclose(slowed, ascent, rtol=1e-2)


def test_wga_without_weights_is_gradient_difference_and_satimp_with_both_powers_zero_too() -> None:
    plain = gradient_of("gradient_difference", GradientDifferenceSettings())
    torch.testing.assert_close(gradient_of("wga", WgaSettings(beta=0.0)), plain)
    satimp = SatImpSettings(saturation=0.0, importance=0.0, forget_weight=1.0)
    torch.testing.assert_close(gradient_of("satimp", satimp), plain)


def test_weights_and_targets_pass_no_gradient() -> None:
    student = Bigrams(1)
    compute("wga", WgaSettings(retain_weight=0.0), student).backward()  # type: ignore[no-untyped-call]
    expected = torch.zeros_like(student.table)
    tokens = [pair for record in list_tokens(FORGET) for pair in record]
    for before, token in tokens:  # -p d NLL / d logits = p (onehot - q)
        q = STUDENT.table[before].detach().softmax(0)
        step = q[token] * -q
        step[token] += q[token]
        expected[before] += step / len(tokens)
    torch.testing.assert_close(student.table.grad, expected)


def test_undial_leaves_the_original_where_nothing_is_lowered() -> None:
    student = Bigrams(0)
    compute("undial", UndialSettings(beta=0.0), student).backward()  # type: ignore[no-untyped-call]
    assert student.table.grad is not None
    assert student.table.grad.abs().max() < 1e-15


@pytest.fixture(scope="module")
def gpt2() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=N_TOKENS, n_positions=16, n_embd=16, n_layer=8, n_head=2, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_rmu_pushes_one_block_to_one_direction_and_keeps_it_for_retained_records(gpt2: Any) -> None:
    with torch.no_grad():
        hidden = {
            name: gpt2(input_ids=source.input_ids, output_hidden_states=True).hidden_states[3]  # of block 2
            for name, source in (("forget", FORGET), ("retain", RETAIN))
        }
        is_asked = FORGET.labels[:, 1:] != -100
        direction = torch.rand(16, generator=torch.Generator().manual_seed(100))
        direction *= 2 / direction.norm()
        expected = (hidden["forget"][:, :-1][is_asked] - direction).square().mean()
        torch.testing.assert_close(compute("rmu", RmuSettings(), gpt2, gpt2), expected)  # retained states did not move
        moved = read_hidden(gpt2, {**draw(RETAIN)[0]}, 2)
        places = draw(RETAIN)[0]["asked"][:, :, None].expand(-1, -1, 16)
        torch.testing.assert_close(moved, hidden["retain"].gather(1, places))


@pytest.mark.parametrize(("n_trained", "trained"), [(3, {3, 4, 5}), (1, {5}), (99, {0, 1, 2, 3, 4, 5})])
def test_rmu_trains_the_blocks_that_it_says(gpt2: Any, n_trained: int, trained: set[int]) -> None:
    gpt2.zero_grad()
    compute("rmu", RmuSettings(layer=5, n_trained=n_trained), gpt2, gpt2).backward()
    found = {name for name, value in gpt2.named_parameters() if value.grad is not None and value.grad.any()}
    assert {int(name.split(".")[2]) for name in found if ".h." in name} == trained
    assert all(".h." in name for name in found)
    assert len(found) == 12 * len(trained)


def test_rmu_asks_for_blocks_and_a_width() -> None:
    assert len(find_blocks(TinyLanguageModel())) == 2
    with pytest.raises(InputError, match="layer must be below the model's 2 blocks; got 2"):
        compute("rmu", RmuSettings(layer=2), TinyLanguageModel(), TinyLanguageModel())
    with pytest.raises(InputError, match=r"model must keep its blocks in an nn\.ModuleList; got Bigrams"):
        compute("rmu", RmuSettings(), STUDENT)
    bare = TinyLanguageModel()
    del bare.config
    with pytest.raises(InputError, match=r"model must say its width as config\.hidden_size"):
        compute("rmu", RmuSettings(), bare, bare)


def test_preferences_are_paired_by_row() -> None:
    with pytest.raises(InputError, match="preferred must hold one record per dispreferred one, 5; got 7"):
        Preferences(FORGET, RETAIN)
    assert len(draw_refusals(400)) == 400
    assert draw_refusals(400, seed=1) != draw_refusals(400, seed=2)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gradient_difference", {"epochs": 10, "learning_rate": 1e-5, "retain_weight": 1.0}),
        ("npo", {"epochs": 10, "learning_rate": 1e-5, "beta": 0.1}),
        ("simnpo", {"beta": 4.5, "delta": 0.0, "forget_weight": 0.125}),
        ("rmu", {"layer": None, "strength": 2.0, "n_trained": 3}),
        ("undial", {"beta": 10.0, "learning_rate": 1e-4, "epochs": 10}),
        ("idk_dpo", {"beta": 0.1, "learning_rate": 1e-5}),
        ("wga", {"beta": 1.0, "epochs": 5, "learning_rate": 1e-5}),
        ("satimp", {"saturation": 5.0, "importance": 1.0, "forget_weight": 0.1}),
        ("ce_u", {"n_skipped": 1}),
    ],
)
def test_defaults_are_those_of_the_public_code(name: str, values: dict[str, Any]) -> None:
    settings = METHODS[name].settings()
    assert {key: getattr(settings, key) for key in values} == values
    assert (settings.optimizer, settings.weight_decay, settings.batch_size) == ("adamw", 0.01, 32)
    assert METHODS[name].reads[0] == "forget"
    choices = METHODS[name].list_choices(epochs=2)
    assert 1 < len(choices) < 7
    assert {choice.epochs for choice in choices} == {2}
    assert all(choice.learning_rate in METHODS[name].grid["learning_rate"] for choice in choices)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NpoSettings(beta=0.0),
        lambda: SimNpoSettings(delta=-1.0),
        lambda: SimNpoSettings(forget_weight=0.0),
        lambda: RmuSettings(layer=-1),
        lambda: RmuSettings(n_trained=0),
        lambda: RmuSettings(strength=math.inf),
        lambda: UndialSettings(beta=-1.0),
        lambda: WgaSettings(beta=-0.1),
        lambda: SatImpSettings(saturation=math.nan),
        lambda: CeUSettings(n_skipped=-1),
        lambda: GradientDifferenceSettings(retain_weight=-1.0),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError, match="must be a"):
        make()
