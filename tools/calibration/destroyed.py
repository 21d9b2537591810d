"""Part D: models that no longer work. An audit must call them damaged, and never erased."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from calibration.perceptrons import Draw, load_source
from calibration.unlearned import N_FORGET, N_HELD_OUT, RETAIN
from calibration.world import World
from ruler.core.errors import DivergedError
from ruler.unlearning import GradientAscentSettings, unlearn

LEAST_SKILL = 0.15
"""Under this skill (0: guessing, 1: all right) a model counts as near chance."""

KINDS = (
    "all weights drawn anew",
    "noise on the weights",
    "gradient ascent on all records",
    "first layer's units permuted",
    "all but two weak units of the layer zeroed",
    "trained on shuffled labels",
)


def make_destroyed(name: str, seed: int) -> Iterator[World]:
    """The six kinds, from one original; the oracle shares its start if the seed is even."""
    source, rng = load_source(name), np.random.default_rng([6, seed])
    sizes = np.cumsum([N_FORGET, N_HELD_OUT, RETAIN[name]])
    forget, held_out, retain, _ = np.split(rng.permutation(len(source.target)), sizes)
    draw = Draw.of(source, forget=forget, retain=retain, held_out=held_out)
    both = np.concatenate([draw.rows["retain"], forget])
    start = seed if seed % 2 == 0 else seed + 500_000
    original = draw.train(both, start=seed, dropout_seed=10 * seed)
    oracle = draw.train(draw.rows["retain"], start=start, dropout_seed=10 * seed + 1)
    for kind in KINDS:
        if kind == "trained on shuffled labels":
            labels = draw.labels.copy()
            labels[both] = rng.permutation(labels[both])
            model = draw.train(both, start=seed, dropout_seed=10 * seed + 2, labels=labels)
        else:
            model = destroy(kind, original, draw.pair(both), draw.measure_skill, seed, first=0, last=3)
        facts = {"true_skill": draw.measure_skill(model), "original_skill": draw.measure_skill(original)}
        known = {"oracles": [draw.embed(oracle)], "original": draw.embed(original)}
        yield World(name, kind, seed, draw.embed(model), facts=facts, **known)


def destroy(
    kind: str,
    original: nn.Module,
    records: tuple[np.ndarray, np.ndarray],
    measure: Callable[[nn.Module], float],
    seed: int,
    *,
    first: int | str,
    last: int | str,
) -> nn.Module:
    """A copy of the model that was destroyed in this way.

    Args:
        records: What gradient ascent raises the loss on.
        measure: The skill of a model.
        first: Name of the first hidden layer, whose output units are permuted.
        last: Name of the layer whose output the audit reads.
    """
    torch.manual_seed(seed + 800_000)
    model = copy.deepcopy(original)
    with torch.no_grad():
        if kind == "all weights drawn anew":
            for module in model.modules():
                if hasattr(module, "reset_parameters"):
                    module.reset_parameters()
        elif kind == "noise on the weights":
            return _add_noise(original, measure)
        elif kind == "first layer's units permuted":
            layer = _find(model, first)
            layer.weight.copy_(layer.weight[torch.randperm(len(layer.weight))])
        elif kind == "all but two weak units of the layer zeroed":
            layer, head = _find(model, last), _find(model, -1 if isinstance(last, int) else "head")
            weakest = torch.argsort(head.weight.norm(dim=0))
            layer.weight[weakest[2:]], layer.bias[weakest[2:]] = 0.0, 0.0
        else:
            assert kind == "gradient ascent on all records", kind
    return _ascend(original, records, measure) if kind.startswith("gradient") else model.eval()


def _find(model: nn.Module, name: int | str) -> nn.Module:
    return model.net[name] if isinstance(name, int) else model.get_submodule(name)


def _add_noise(original: nn.Module, measure: Callable[[nn.Module], float]) -> nn.Module:
    """Gaussian noise in proportion to each weight's spread, doubled until the model is near chance."""
    scale = 0.5
    while True:
        model = copy.deepcopy(original)
        for parameter in model.parameters():
            spread = parameter.std() if parameter.numel() > 1 else parameter.abs()
            parameter.add_(scale * spread * torch.randn_like(parameter))
        if measure(model.eval()) <= LEAST_SKILL or scale > 100:
            return model
        scale *= 2


def _ascend(
    original: nn.Module, records: tuple[np.ndarray, np.ndarray], measure: Callable[[nn.Module], float]
) -> nn.Module:
    """Gradient ascent, as many epochs as it takes to come near chance."""
    model, settings = original, GradientAscentSettings(loss_bound=1e9)
    for epochs in (5, 10, 20, 40, 80, 160):
        try:
            model = unlearn(
                "gradient_ascent", original, forget=records, retain=None, settings=replace(settings, epochs=epochs)
            )
        except DivergedError:
            break
        if measure(model.eval()) <= LEAST_SKILL:
            break
    return model.eval()
