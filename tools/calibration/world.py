"""A world in which the truth about forgetting is known, and the row that an audit of it leaves."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ruler.core.types import Embeddings

Row = dict[str, Any]
Model = tuple[Embeddings, Embeddings, Embeddings]
SIDES = ("forget", "retain", "held_out")


@dataclass(frozen=True, eq=False)
class World:
    """One audit to be made, in one or several variants.

    Args:
        dataset: Where the records come from.
        kind: How the forget records were chosen, or what was done to the model.
        seed: Of every draw of this world.
        unlearned: The audited model as (forget, retain, held_out).
        oracles: Models retrained without the forget records; the first one is the only one unless a variant says so.
        original: The model before unlearning, where it is given.
        facts: What is known about the world; kept in its row.
        variants: What is given to the audit, see `VARIANTS`.
    """

    dataset: str
    kind: str
    seed: int
    unlearned: Model
    oracles: Sequence[Model]
    original: Model | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ("full",)


def _give_all(world: World) -> dict[str, Any]:
    return {"unlearned": world.unlearned, "oracle": world.oracles[0], "original": world.original}


def _give_without(world: World, field: str) -> dict[str, Any]:
    """All models without their losses or groups."""
    return {
        name: None if model is None else tuple(replace(side, **{field: None}) for side in model)
        for name, model in _give_all(world).items()
    }


VARIANTS = {
    "full": _give_all,
    "five oracles": lambda world: _give_all(world) | {"oracle": list(world.oracles)},
    "no original": lambda world: _give_all(world) | {"original": None},
    "no losses": lambda world: _give_without(world, "losses"),
    "no oracle": lambda world: _give_all(world) | {"oracle": None},
    "no groups": lambda world: _give_without(world, "groups"),
}
"""What an audit of a world is given: variant -> the arguments of `ruler.audit`."""


def judge(world: World, part: str) -> Iterator[Row]:
    """One row per variant of the world, from `ruler.audit` with its default settings and all guards."""
    import ruler
    from ruler.auditing import AuditSettings

    for variant in world.variants:
        settings = AuditSettings(seed=world.seed)
        base = {"part": part, "set": world.dataset, "kind": world.kind, "seed": world.seed, "variant": variant}
        started = time.perf_counter()
        try:
            report = ruler.audit(**VARIANTS[variant](world), settings=settings)
        except Exception as error:  # a failed audit is a result: it is counted and shown, and the others go on
            yield base | {"verdict": "error", "error": f"{type(error).__name__}: {error}", **world.facts}
            continue
        elapsed_s = time.perf_counter() - started
        yield base | describe(report) | {"elapsed_s": round(elapsed_s, 3)} | dict(world.facts)


def describe(report: Any) -> Row:
    """What the tables need of a report; numbers that are not finite become None."""
    from ruler.auditing.contrasts import CONTRASTS

    row: Row = {
        "verdict": report.verdict,
        "reason": report.reason,
        "guards": [guard.name for guard in report.guards],
        "blocking": [guard.name for guard in report.guards if getattr(guard, "blocks", None)],
        "flagged": count_flagged(report),
        "contrasts": {},
    }
    for name, metric in report.metrics.items():
        if not CONTRASTS[name].decides:
            continue
        row["contrasts"][name] = {
            "verdict": metric.verdict,
            "p": _finite(metric.p_value),
            "adjusted_p": _finite(metric.adjusted_p_value),
            "beyond_p": _finite(metric.beyond_oracle_p_value),
            "effect": _finite(metric.effect),
            "spread": _finite(metric.spread),
            "equivalence_p": _finite(metric.equivalence_p_value),
            "is_seen": None if metric.sensitivity is None else bool(metric.sensitivity.is_seen),
            "is_strongest": metric.sensitivity is not None and bool(metric.sensitivity.is_strongest),
            "seen_in": None if metric.sensitivity is None else metric.sensitivity.source,
            "share_left_upper": _finite(metric.share_left_upper),
            "test": metric.test,
        }
    if report.damage is not None:
        row["similarity"] = _finite(report.damage.similarity)
        row["skill"] = _finite(report.damage.skill)
        row["lost"] = _finite(report.damage.lost)
        row["is_damaged"] = bool(report.damage.is_damaged)
    return row


def count_flagged(report: Any) -> int:
    """Forget records whose finding speaks against the model."""
    return int(np.sum(report.records["q_value"].to_numpy(dtype=float) <= report.settings.alpha))


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def measure_attack(unlearned: Model) -> float:
    """AUC of the loss attack: how often a forget record has a lower loss than a held-out one, ties half."""
    from scipy.stats import rankdata

    forget, held_out = unlearned[0].losses, unlearned[2].losses
    ranks = rankdata(-np.concatenate([forget, held_out]))[: len(forget)]
    return float((ranks.sum() - len(forget) * (len(forget) + 1) / 2) / (len(forget) * len(held_out)))
