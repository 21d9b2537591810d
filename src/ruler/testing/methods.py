"""What every unlearning method must do, ours and yours.

Write in your own tests, once your method is registered under its name::

    from ruler.testing.methods import check_method

    def test_contract():
        check_method("my_method")
"""

import copy
import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ruler.core.errors import InputError
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.classifier import train_classifier
from ruler.training.ensemble import EnsembleMember, train_ensemble
from ruler.training.sentences import MaskedSentences
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, UnlearningSettings, unlearn
from ruler.unlearning.ensemble import unlearn_ensemble

_ROWS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
_LABELS = (_ROWS[:, 0] > 0).long()
_RECORDS = {"forget": (_ROWS[:8], _LABELS[:8]), "retain": (_ROWS[8:], _LABELS[8:])}
_N_TOKENS = 40


def check_method(name: str) -> None:
    """Run every check that applies to all methods on small models of a table; takes about a second.

    ``check_sentences`` and ``check_terms`` are for methods that unlearn language models, or run in an ensemble.

    Args:
        name: As users will name it: an entry point's name, or the one given to ``METHODS.register``.

    Raises:
        AssertionError: A rule is broken; the message says which.

    Example:
        >>> check_method("fine_tuning")
    """
    original = train_classifier(lambda: TabularMLP(4), (_ROWS, _LABELS), seed=0, settings=TrainingSettings(epochs=10))
    check_description(name)
    check_settings(name, original)
    check_records(name, original)
    check_isolation(name, original)
    check_repeatability(name, original)
    check_sources(name)


def check_description(name: str) -> None:
    """The method can be named in print and drawn."""
    method = METHODS[name]
    assert method.title.strip(), f"{name} must have a title"
    assert len(method.short) <= len(method.title), f"{name}.short must not be longer than its title"
    assert re.fullmatch("#[0-9A-Fa-f]{6}", method.colour), f"{name}.colour must be like #0072B2; got {method.colour!r}"


def check_settings(name: str, original: nn.Module) -> None:
    """Every setting has a default; values that make no sense, and settings of other methods, are refused."""
    kind: Any = METHODS[name].settings
    assert kind() == kind(**{field.name: field.default for field in fields(kind)}), f"{kind.__name__} needs defaults"
    for bad in ({"epochs": 0}, {"learning_rate": -1.0}, {"seed": -1}, {"batch_size": 0}, {"augment": "crop"}):
        _check_refused(partial(kind, **bad), next(iter(bad)))
    _check_refused(partial(_unlearn, name, original, UnlearningSettings()), "settings must be")


def check_records(name: str, original: nn.Module) -> None:
    """Records that the method reads are asked for, and it does without the others."""
    reads = METHODS[name].reads
    for side in reads:
        _check_refused(partial(_unlearn, name, original, **{side: None}), f"{side} must hold records")
    _unlearn(name, original, **{side: None for side in _RECORDS if side not in reads})


def check_isolation(name: str, original: nn.Module) -> None:
    """The given model and the caller's random streams stay as they were; nothing is printed unless asked for."""
    model = copy.deepcopy(original)
    next(module for module in model.modules() if isinstance(module, nn.Dropout)).train()
    modes = [module.training for module in model.modules()]
    torch.manual_seed(3)
    np.random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    screen = _Terminal()
    with redirect_stderr(screen), redirect_stdout(screen):
        unlearned = _unlearn(name, model)
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


def check_repeatability(name: str, original: nn.Module) -> None:
    """The seed decides everything: not the caller's random streams, and not the number of threads."""
    method, n_threads = METHODS[name], torch.get_num_threads()

    def run(seed: int, batch_size: int | None = None) -> torch.Tensor:
        return flatten(_unlearn(name, original, method.settings(seed=seed, batch_size=batch_size, epochs=2)))

    for batch_size in (None, 16):
        torch.manual_seed(0)
        first = run(1, batch_size)
        torch.manual_seed(1)
        assert torch.equal(run(1, batch_size), first), f"{name} must depend on settings.seed and nothing else"
    if method.make_objective is not None:
        assert not torch.equal(run(2, batch_size), first), f"{name} must shuffle mini batches by settings.seed"
    first = run(1)
    try:
        torch.set_num_threads(1 if n_threads > 1 else 2)
        torch.testing.assert_close(run(1), first, atol=1e-5, rtol=0)
    finally:
        torch.set_num_threads(n_threads)


def check_sources(name: str) -> None:
    """Datasets and loaders will do for records, and convolutions with batch normalisation for a model."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2)
    )
    forget = DataLoader(TensorDataset(*_RECORDS["forget"]), batch_size=4)
    settings = METHODS[name].settings(batch_size=26, epochs=1)
    unlearned = unlearn(name, model, forget=forget, retain=TensorDataset(*_RECORDS["retain"]), settings=settings)
    assert torch.isfinite(flatten(unlearned)).all(), f"{name} must leave finite weights"
    assert not torch.equal(flatten(unlearned), flatten(model)), f"{name} must change the weights"


def check_sentences(name: str) -> None:
    """The method unlearns masked sentences, in mini batches and at once, and repeats itself.

    Example:
        >>> check_sentences("fine_tuning")
    """
    torch.manual_seed(0)
    model = _Guesser()
    forget, retain = _make_sentences(10, 1), _make_sentences(30, 2)
    for batch_size in (8, None):
        settings = METHODS[name].settings(epochs=2, batch_size=batch_size, records_per_epoch=20)
        first, again = (
            flatten(unlearn(name, model, forget=forget, retain=retain, settings=settings)) for _ in range(2)
        )
        assert torch.equal(first, again), f"{name} must repeat itself on sentences"
        assert not torch.equal(first, flatten(model)), f"{name} must change the weights of a language model"


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
        alone = _unlearn(name, model, settings, **parts).state_dict()
        for key, value in together.state_dict(member).items():
            torch.testing.assert_close(value, alone[key], atol=5e-5, rtol=0, msg=f"{name}.terms: {key} differs")
            assert not torch.equal(value, originals.state_dict(member)[key]), f"{name} must change {key}"


def flatten(model: nn.Module) -> torch.Tensor:
    """All weights and buffers of a model as one vector."""
    return torch.cat([value.detach().float().flatten() for value in model.state_dict().values()])


def _unlearn(name: str, model: nn.Module, settings: UnlearningSettings | None = None, **changes: Any) -> nn.Module:
    records: dict[str, Any] = {**_RECORDS, **changes}
    return unlearn(name, model, forget=records["forget"], retain=records["retain"], settings=settings)


def _check_refused(make: Callable[[], object], message: str) -> None:
    said = "nothing"
    try:
        make()
    except InputError as error:
        said = str(error)
    assert message in said, f"an InputError that says {message!r} must be raised; got {said}"


class _Terminal(io.StringIO):
    """A screen on which a progress bar would show."""

    def isatty(self) -> bool:
        return True


class _Guesser(nn.Module):
    """A tiny masked language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_N_TOKENS, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, _N_TOKENS)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        words = self.words(input_ids) * attention_mask[:, :, None]
        logits: torch.Tensor = self.head(self.norm(words + words.mean(dim=1, keepdim=True)))
        return logits


def _make_sentences(n: int, seed: int) -> MaskedSentences:
    ids = torch.randint(4, _N_TOKENS, (n, 12), generator=torch.Generator().manual_seed(seed))
    return MaskedSentences(ids, torch.ones_like(ids), mask_id=3, special_ids=(0, 1), vocab_size=_N_TOKENS)
