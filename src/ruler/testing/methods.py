"""What every unlearning method must do, ours and yours.

Write in your own tests, once your method is registered under its name::

    from ruler.testing.methods import check_method

    def test_contract():
        check_method("my_method")
"""

import copy
import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ruler.core.determinism import seeded
from ruler.core.errors import InputError
from ruler.models.ft_transformer import FTTransformer
from ruler.models.tabular_mlp import TabularMLP
from ruler.testing import check_refused
from ruler.training.batches import Batches
from ruler.training.classifier import train_classifier
from ruler.training.ensemble import EnsembleMember, train_ensemble
from ruler.training.loop import optimize
from ruler.training.sentences import Completions, MaskedSentences, Preferences
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import METHODS, Plan, UnlearningSettings, unlearn
from ruler.unlearning.ensemble import unlearn_ensemble
from ruler.unlearning.method import follow

_ROWS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
_LABELS = (_ROWS[:, 0] > 0).long()
_N_TOKENS, _LENGTH = 40, 12

Records = dict[str, Any]
"""``forget`` and ``retain`` -> a source of records."""


def check_method(name: str) -> None:
    """Run every check that applies to all methods on small models of the method's kind; takes about a second.

    ``check_sentences``, ``check_completions`` and ``check_terms`` are for methods that unlearn language models, or run
    in an ensemble.

    Args:
        name: As users will name it: an entry point's name, or the one given to ``METHODS.register``.

    Raises:
        AssertionError: A rule is broken; the message says which.

    Example:
        >>> check_method("fine_tuning")
    """
    check_description(name)
    original, records = make_example(METHODS[name].kind)
    check_settings(name, original, records)
    check_records(name, original, records)
    check_isolation(name, original, records)
    check_repeatability(name, original, records)
    if METHODS[name].kind in ("any", "classifier"):
        for architecture in ARCHITECTURES:
            check_architecture(name, architecture)


@cache
def make_example(kind: str) -> tuple[nn.Module, Records]:
    """A small trained model, and the records that it is to forget and to retain, for methods of a kind.

    Args:
        kind: As ``Method.kind``. A table for ``"any"`` and ``"classifier"``; completions, with others to prefer for
            ``"preferences"``, in a causal language model that knows them by heart.

    Example:
        >>> model, records = make_example("language")
        >>> len(records["forget"]), len(records["retain"])
        (8, 24)
    """
    if kind in ("any", "classifier"):
        settings = TrainingSettings(epochs=10)
        model: nn.Module = train_classifier(lambda: TabularMLP(4), (_ROWS, _LABELS), seed=0, settings=settings)
        return model, {"forget": (_ROWS[:5], _LABELS[:5]), "retain": (_ROWS[5:], _LABELS[5:])}
    torch.manual_seed(0)
    model = learn_by_heart(TinyLanguageModel())
    forget: Any = make_completions(8, 1)
    if kind == "preferences":
        forget = Preferences(forget, make_completions(8, 3, prompts=forget))
    return model, {"forget": forget, "retain": make_completions(24, 2)}


def check_description(name: str) -> None:
    """The method can be named in print and drawn."""
    method = METHODS[name]
    assert method.title.strip(), f"{name} must have a title"
    assert len(method.short) <= len(method.title), f"{name}.short must not be longer than its title"
    assert re.fullmatch("#[0-9A-Fa-f]{6}", method.colour), f"{name}.colour must be like #0072B2; got {method.colour!r}"


def check_settings(name: str, original: nn.Module, records: Records) -> None:
    """Every setting has a default; values that make no sense, and settings of other methods, are refused."""
    kind: Any = METHODS[name].settings
    assert kind() == kind(**{field.name: field.default for field in fields(kind)}), f"{kind.__name__} needs defaults"
    for bad in ({"epochs": 0}, {"learning_rate": -1.0}, {"seed": -1}, {"batch_size": 0}, {"augment": "crop"}):
        if not ("augment" in bad and kind.may_augment):
            check_refused(partial(kind, **bad), next(iter(bad)), InputError)
    foreign: Any = TrainingSettings()  # on purpose
    check_refused(partial(_unlearn, name, original, records, foreign), "settings must be", InputError)


def check_records(name: str, original: nn.Module, records: Records) -> None:
    """Records that the method reads are asked for, those of another kind refused, and it does without the others."""
    reads = METHODS[name].reads
    for side in reads:
        without = partial(_unlearn, name, original, {**records, side: None})
        check_refused(without, f"{side} must hold records", InputError)
    _unlearn(name, original, {side: value if side in reads else None for side, value in records.items()})


def check_isolation(name: str, original: nn.Module, records: Records) -> None:
    """The given model and the caller's random streams stay as they were; nothing is printed unless asked for."""
    model = copy.deepcopy(original)
    next(module for module in model.modules() if isinstance(module, nn.Dropout)).train()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(3)
    np.random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    screen = _Terminal()
    with redirect_stderr(screen), redirect_stdout(screen):
        unlearned = _unlearn(name, model, records)
    assert screen.getvalue() == "", f"{name} must print nothing without progress; got {screen.getvalue()!r}"
    assert torch.equal(torch.get_rng_state(), before[0]), f"{name} must leave torch's random stream alone"
    assert np.random.get_state()[1].tolist() == before[1], f"{name} must leave NumPy's random stream alone"  # type: ignore[index]
    assert torch.equal(flatten(model), flatten(original)), f"{name} must not change the given model"
    assert all(value.requires_grad and value.grad is None for value in model.parameters()), (
        f"{name} must leave no gradients on the given model, and not freeze it"
    )
    assert [module.training for module in model.modules()] == modes, f"{name} must not change the given model's mode"
    assert [module.training for module in unlearned.modules()] == modes, f"{name} must keep the mode of the model"
    assert not torch.equal(flatten(unlearned), flatten(original)), f"{name} must change the weights"


def check_repeatability(name: str, original: nn.Module, records: Records) -> None:
    """The seed decides everything: not the caller's random streams, and not the number of threads."""
    method, n_threads = METHODS[name], torch.get_num_threads()

    def run(seed: int, batch_size: int | None = None) -> torch.Tensor:
        settings = method.settings(seed=seed, batch_size=batch_size, epochs=2)
        return flatten(_unlearn(name, original, records, settings))

    for batch_size in (None, 4):
        torch.manual_seed(0)
        first = run(1, batch_size)
        torch.manual_seed(1)
        assert torch.equal(run(1, batch_size), first), f"{name} must depend on settings.seed and nothing else"
    if method.edit is None:
        assert not torch.equal(run(2, batch_size), first), f"{name} must shuffle mini batches by settings.seed"
    first = run(1)
    try:
        torch.set_num_threads(1 if n_threads > 1 else 2)
        torch.testing.assert_close(run(1), first, atol=1e-5, rtol=0)
    finally:
        torch.set_num_threads(n_threads)


def check_architecture(name: str, architecture: str) -> None:
    """The method unlearns a classifier of this architecture, from pairs, datasets and loaders alike.

    It repeats itself, the given model stays as it was, the weights stay finite, and every loss that it minimises falls.

    Args:
        name: Of a method for classifiers.
        architecture: Of `ARCHITECTURES`.

    Example:
        >>> check_architecture("salun", "CNN")
    """
    method, original = METHODS[name], make_classifier(architecture)
    records = make_example("classifier")[1]
    before, settings = flatten(original), method.settings(epochs=3, batch_size=None)
    first = _unlearn(name, original, records, settings)
    order = torch.Generator()  # a loader without one of its own draws from the global stream, as dropout does
    loader = DataLoader(TensorDataset(*records["forget"]), batch_size=5, generator=order)
    data = TensorDataset(*records["retain"])
    again = unlearn(name, original, forget=loader, retain=data, settings=settings)
    assert torch.equal(flatten(first), flatten(again)), f"{name} must repeat itself on the {architecture}"
    assert torch.equal(flatten(original), before), f"{name} must not change the given {architecture}"
    assert torch.isfinite(flatten(first)).all(), f"{name} must leave finite weights in the {architecture}"
    if method.edit is None:  # a method that picks weights may find none in so small a model
        assert not torch.equal(flatten(first), before), f"{name} must change the weights of the {architecture}"
        check_objective(name, original, records, settings)


def check_objective(name: str, original: nn.Module, records: Records, settings: UnlearningSettings) -> None:
    """Every stage of a method that minimises a loss lowers it, the last one strictly, the others to 0.0001.

    The loss is that of all records at once, without dropout, batch norms being in train mode.
    """
    method = METHODS[name]
    with seeded(settings.seed):
        student = copy.deepcopy(original)
        read: Records = {side: records[side] for side in method.reads}
        losses = [(0.0, 0.0)]
        for plan in method.list_plans(original, student, read, settings):
            sources = plan.records or read
            start = _measure(plan, student, sources)
            follow(student, plan, sources, settings)
            losses.append((start, _measure(plan, student, sources)))
            assert losses[-1][1] <= start + 1e-4, f"{name} must lower its own loss; got {start:.6g}, then {losses[-1]}"
    assert losses[-1][1] < losses[-1][0], f"{name} must lower its own loss; got {losses[-1]}"


def _measure(plan: Plan, student: nn.Module, sources: Mapping[str, Any]) -> float:
    probe = copy.deepcopy(student).eval()
    for module in probe.modules():
        module.training = isinstance(module, nn.modules.batchnorm._BatchNorm)
    with seeded(0), torch.no_grad():
        batches = [next(iter(Batches(source, probe))) for source in sources.values()]
        return plan.objective(probe, *batches).item()


ARCHITECTURES: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: TabularMLP(4),
    "CNN": lambda: nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 6, 2, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.1)),
        *(nn.Flatten(), nn.Linear(54, 2)),
    ),
    "transformer": lambda: FTTransformer(4, width=16, n_blocks=1, n_heads=2),
}
"""What classifiers are made of in the contract: small models of rows with four features."""


@cache
def make_classifier(architecture: str) -> nn.Module:
    """A small model of this architecture that was trained on the table of ``make_example``."""
    settings = TrainingSettings(epochs=10, learning_rate=0.005)
    return train_classifier(ARCHITECTURES[architecture], (_ROWS, _LABELS), seed=0, settings=settings)


def check_sentences(name: str) -> None:
    """The method unlearns masked sentences, in mini batches and at once, and repeats itself.

    Example:
        >>> check_sentences("fine_tuning")
    """
    torch.manual_seed(0)
    model = TinyLanguageModel()
    forget, retain = _make_sentences(10, 1), _make_sentences(30, 2)
    for batch_size in (8, None):
        settings = METHODS[name].settings(epochs=2, batch_size=batch_size, records_per_epoch=20)
        first, again = (
            flatten(unlearn(name, model, forget=forget, retain=retain, settings=settings)) for _ in range(2)
        )
        assert torch.equal(first, again), f"{name} must repeat itself on sentences"
        assert not torch.equal(first, flatten(model)), f"{name} must change the weights of a language model"


def check_completions(name: str, model: nn.Module | None = None) -> None:
    """The method unlearns completions with a causal language model: its loss falls, and the given model stays.

    Args:
        name: Of a method of any kind but ``"classifier"``.
        model: One that knows the records of ``make_example`` by heart (see ``learn_by_heart``), without dropout; None
            takes a tiny one.

    Example:
        >>> check_completions("npo")
    """
    method = METHODS[name]
    known, records = make_example(method.kind if method.kind == "preferences" else "language")
    original = (known if model is None else model).eval()
    settings = method.settings(epochs=3, batch_size=8, learning_rate=2e-4)
    before = flatten(original)
    first, again = (_unlearn(name, original, records, settings) for _ in range(2))
    assert torch.equal(flatten(first), flatten(again)), f"{name} must repeat itself on completions"
    assert torch.equal(flatten(original), before), f"{name} must not change the given language model"
    assert torch.isfinite(flatten(first)).all(), f"{name} must leave finite weights"
    if method.edit is None:
        check_objective(name, original, records, settings)


def learn_by_heart(model: nn.Module) -> nn.Module:
    """Train a causal language model of at least 40 tokens on the records of ``make_example``; it ends in eval mode."""
    forget, retain = make_completions(8, 1), make_completions(24, 2)
    both = (torch.cat([getattr(forget, name), getattr(retain, name)]) for name in ("input_ids", "labels"))
    settings = TrainingSettings(epochs=60, learning_rate=1e-2)
    optimize(model, cross_entropy, {"data": Completions(*both)}, settings)
    return model.eval()


def check_terms(name: str, settings: UnlearningSettings | None = None) -> None:
    """The ensemble gives each member what ``unlearn`` gives it alone, to rounding; there is no dropout.

    Example:
        >>> check_terms("fine_tuning")
    """
    features, labels = _ROWS.numpy(), _LABELS.numpy()
    originals = train_ensemble(features, labels, [EnsembleMember(0), EnsembleMember(1)], dropout=0.0)
    before = originals.flat.clone()
    sets = [np.array([3, 4, 30, 59]), np.arange(10, 20)]
    together = unlearn_ensemble(name, originals, features=features, labels=labels, forget=sets, settings=settings)
    assert torch.equal(originals.flat, before), f"{name} must not change the given members"
    for member, forget in enumerate(sets):
        model = TabularMLP(4, dropout=0.0)
        model.load_state_dict(originals.state_dict(member))
        retain = np.setdiff1d(np.arange(len(features)), forget)
        parts = {side: (features[rows], labels[rows]) for side, rows in (("forget", forget), ("retain", retain))}
        alone = _unlearn(name, model, parts, settings).state_dict()
        for key, value in together.state_dict(member).items():
            torch.testing.assert_close(value, alone[key], atol=5e-5, rtol=0, msg=f"{name}.terms: {key} differs")
            assert not torch.equal(value, originals.state_dict(member)[key]), f"{name} must change {key}"


def flatten(model: nn.Module) -> torch.Tensor:
    """All weights and buffers of a model as one vector."""
    return torch.cat([value.detach().float().flatten() for value in model.state_dict().values()])


def _unlearn(name: str, model: nn.Module, records: Records, settings: UnlearningSettings | None = None) -> nn.Module:
    return unlearn(name, model, forget=records["forget"], retain=records["retain"], settings=settings)


class _Terminal(io.StringIO):
    """A screen on which a progress bar would show."""

    def isatty(self) -> bool:
        return True


class TinyLanguageModel(nn.Module):
    """A causal language model of two blocks, each of which adds what it makes of the mean of all tokens so far."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=width)
        self.words, self.places = nn.Embedding(_N_TOKENS, width), nn.Embedding(_LENGTH, width)
        self.blocks = nn.ModuleList([_Block(width), _Block(width)])
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.0)
        self.head = nn.Linear(width, _N_TOKENS)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (n, t, n_tokens); there is nothing to mask, since padding follows."""
        hidden = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(self.dropout(self.norm(hidden)))
        return logits


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(2 * width), nn.Linear(2 * width, width), nn.GELU())

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        counts = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)[:, None]
        moved: torch.Tensor = self.net(torch.cat([hidden, hidden.cumsum(1) / counts], dim=2))
        return hidden + moved


def make_completions(n: int, seed: int, prompts: Completions | None = None) -> Completions:
    """Random prompts of four tokens, or those of other records, with random completions of up to seven and padding."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, _N_TOKENS, (n, _LENGTH), generator=draw)
    if prompts is not None:
        ids[:, :4] = prompts.input_ids[:, :4]
    lengths = torch.randint(6, _LENGTH, (n, 1), generator=draw)
    places = torch.arange(_LENGTH)
    ids = ids.masked_fill(places >= lengths, 0)
    return Completions(ids, ids.masked_fill((places < 4) | (places >= lengths), -100))


def _make_sentences(n: int, seed: int) -> MaskedSentences:
    ids = torch.randint(4, _N_TOKENS, (n, _LENGTH), generator=torch.Generator().manual_seed(seed))
    return MaskedSentences(ids, torch.ones_like(ids), mask_id=3, special_ids=(0, 1), vocab_size=_N_TOKENS)
