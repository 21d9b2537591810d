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
        reference: Another model that never saw forget or held-out records, for the variants that give one.
        relearned: By model and side, losses after relearning the other half of all records.
        settings: Of the audit, beside the seed.
        facts: What is known about the world; kept in its row.
        variants: What is given to the audit, see `VARIANTS`.
    """

    dataset: str
    kind: str
    seed: int
    unlearned: Model
    oracles: Sequence[Model]
    original: Model | None = None
    reference: Model | None = None
    relearned: Mapping[str, Mapping[str, np.ndarray]] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ("full",)


def _give_all(world: World) -> dict[str, Any]:
    return {"unlearned": world.unlearned, "oracle": world.oracles[0], "original": world.original}


def _give_without(world: World, *fields: str) -> dict[str, Any]:
    """All models without their losses, labels or groups."""
    nothing = dict.fromkeys(fields)
    return {
        name: None if model is None else tuple(replace(side, **nothing) for side in model)
        for name, model in _give_all(world).items()
    }


VARIANTS = {
    "full": _give_all,
    "two oracles": lambda world: _give_all(world) | {"oracle": list(world.oracles[:2])},
    "no original": lambda world: _give_all(world) | {"original": None},
    "no losses": lambda world: _give_without(world, "losses"),
    "no labels": lambda world: _give_without(world, "labels"),
    "no oracle": lambda world: _give_all(world) | {"oracle": None},
    "reference": lambda world: _give_all(world) | {"oracle": None, "reference": world.reference},
    "reference only": lambda world: {"unlearned": world.unlearned, "reference": world.reference},
    "relearned": lambda world: {
        "unlearned": world.unlearned,
        "original": world.original,
        "reference": world.reference,
        "relearned": world.relearned,
    },
    "no groups": lambda world: _give_without(world, "groups"),
}
"""What an audit of a world is given: variant -> the arguments of `ruler.audit`."""


def judge(world: World, part: str) -> Iterator[Row]:
    """One row per variant of the world, from `ruler.audit` with all guards."""
    from ruler.auditing import AuditSettings

    for variant in world.variants:
        settings = AuditSettings(**{"seed": world.seed, **world.settings})
        base = {"part": part, "set": world.dataset, "kind": world.kind, "seed": world.seed, "variant": variant}
        started = time.perf_counter()
        try:
            report = audit_given(VARIANTS[variant](world), settings)
        except Exception as error:  # a failed audit is a result: it is counted and shown, and the others go on
            yield base | {"verdict": "error", "error": f"{type(error).__name__}: {error}", **world.facts}
            continue
        elapsed_s = time.perf_counter() - started
        yield base | describe(report) | {"elapsed_s": round(elapsed_s, 3)} | dict(world.facts)


def audit_given(given: dict[str, Any], settings: Any) -> Any:
    """`ruler.audit`; what a language model's losses are, and what they became by relearning, is said beside them."""
    from ruler.auditing import audit_evidence, gather_evidence

    relearned = given.pop("relearned", None)
    is_language = all(side.labels is None for side in given["unlearned"])
    kind = {"loss_kind": "likelihood"} if is_language else {}
    return audit_evidence(gather_evidence(**given, settings=settings, relearned=relearned, **kind))


def describe(report: Any) -> Row:
    """What the tables need of a report; numbers that are not finite become None."""
    from ruler.auditing.contrasts import list_deciding
    from ruler.auditing.verdict import decide

    row: Row = {
        "verdict": report.verdict,
        "outputs": report.outputs.verdict,
        "layers": report.layers.verdict,
        "half": decide(replace(report, settings=replace(report.settings, limit=0.5))).verdict,
        "says": decide(replace(report, settings=replace(report.settings, scope="outputs"))).verdict,
        "reason": report.reason,
        "guards": [guard.name for guard in report.guards],
        "blocking": [guard.name for guard in report.guards if guard.blocks],
        "flagged": count_flagged(report),
        "contrasts": {},
    }
    for name in list_deciding(report.metrics):
        metric = report.metrics[name]
        row["contrasts"][name] = {
            "verdict": metric.verdict,
            "p": _finite(metric.p_value),
            "parts": {part: _finite(one.p_value) for part, one in metric.parts.items()},
            "effect": _finite(metric.effect),
            "original_p": _finite(metric.control.original_p_value),
            "remaining": {
                scale: [_finite(getattr(one, field)) for field in _NUMBERS] for scale, one in metric.remaining.items()
            },
        }
    if report.groups is not None:
        row["groups"] = report.groups["verdict"].value_counts().to_dict()
        half = decide(replace(report, settings=replace(report.settings, limit=0.5))).groups
        row["groups_half"] = half["verdict"].value_counts().to_dict()
    row["metrics"] = {name: _finite(metric.value) for name, metric in report.metrics.items()}
    if report.damage is not None:
        row["similarity"] = _finite(report.damage.similarity)
        row["skill"] = _finite(report.damage.skill)
        row["lost"] = _finite(report.damage.lost)
        row["is_damaged"] = bool(report.damage.is_damaged)
    return row


_NUMBERS = ("value", "low", "high", "at_least", "at_most", "visibility", "resolution")


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
