"""Reports as an audit could give them, made from a few numbers, for every verdict and any size."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import (
    AttackFinding,
    Damage,
    Distributions,
    FamilyFinding,
    Given,
    GuardFinding,
    LayerFinding,
    MetricControl,
    MetricFinding,
    Pairing,
    PaperReading,
    Part,
    Plane,
    Privacy,
    Remaining,
    Report,
)
from ruler.auditing.records import ALIKE
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import decide

NAN = float("nan")
VERDICTS = ("erased", "residual", "displaced", "damaged", "inconclusive", "invalid")
VALUES = {
    "m1": 0.9931,
    "m2": -0.0041,
    "m3": -0.0005,
    "m4": 0.561,
    "norm": 0.0213,
    "loss": -0.3127,
    "readout": 1.41,
    "tangent": 0.21,
    "relearned": 1.2,
}
"""The paper's numbers, and ours, as a report gives them."""

REMAINS = {
    "erased": {"loss": 0.04, "readout": 0.03, "tangent": 0.02, "relearned": 0.03},
    "residual": {"loss": 0.34, "readout": 0.83, "tangent": 0.96, "relearned": 0.83},
    "displaced": {"loss": -0.62, "readout": -0.21, "tangent": -0.11, "relearned": 0.0},
    "inconclusive": {"loss": 0.11, "readout": 0.13, "tangent": 0.12, "relearned": 0.1},
}
"""What remains by verdict and contrast; other verdicts have the numbers of an inconclusive one."""

NEEDS = [
    "Two oracles retrained from other seeds: the forget set is not a random draw.",
    "About 430 held-out records (now 160), to show a limit of 20% for what its layers hold.",
    "The original: it shows what there was to forget.",
]
GUARDS = [
    GuardFinding(
        "near_duplicates",
        "warn",
        "3 of 40 forget records have a near-duplicate among the retain records (similarity above 0.9999).",
        "Forget the duplicates too, or take these records out of the forget set.",
    ),
    GuardFinding("small_forget_set", "note", "40 forget records find an AUC of 0.63 or more.", "Add forget records."),
]
_BLOCKING = GuardFinding(
    "exchangeability",
    "warn",
    "Forget and held-out records can be told apart in the oracle, which saw neither (AUC 0.81, p = 0.0001).",
    "Give held-out records of the same labels, or five oracles.",
    blocks=True,
)
_FAILED = GuardFinding(
    "identical_models", "fail", "Unlearned and oracle embeddings are the same array.", "Give the unlearned model."
)


def make_report(
    verdict: str = "residual",
    *,
    n_forget: int = 40,
    n_held_out: int = 160,
    n_retain: int = 400,
    n_layers: int = 1,
    n_references: int = 0,
    has_oracle: bool = True,
    has_original: bool = True,
    has_losses: bool = True,
    has_labels: bool = True,
    n_groups: int = 0,
    ids: list[str] | None = None,
    guards: list[GuardFinding] | None = None,
    settings: AuditSettings | None = None,
    declared: dict[str, str] | None = None,
    seed: int = 0,
) -> Report:
    """A report whose numbers hang together well enough to be read; its verdicts are read from them by the rule."""
    random = np.random.default_rng(seed)
    has = {"oracle": has_oracle, "original": has_original, "losses": has_losses, "classes": has_labels}
    given = [name for name, contrast in CONTRASTS.items() if all(has.get(need, False) for need in contrast.needs)]
    records = _make_records(random, verdict, n_forget, has_oracle, has_original, has_losses, n_groups, ids)
    if guards is None:
        guards = {"invalid": [_FAILED, *GUARDS], "erased": [], "inconclusive": [_BLOCKING, *GUARDS]}.get(
            verdict, GUARDS
        )
    layers = [f"transformer.h.{number}" for number in range(n_layers)] if n_layers > 1 else ["fc2"]
    models = ["unlearned", *(["oracle"] if has_oracle else []), *(["original"] if has_original else [])]
    pending = FamilyFinding("inconclusive", None, "")
    report = decide(
        Report(
            verdict="inconclusive",
            reason="",
            outputs=pending,
            layers=pending,
            metrics={name: _make_metric(name, verdict, n_forget, n_held_out, has_original, layers) for name in given},
            records=records,
            groups=_make_groups(records) if n_groups else None,
            guards=guards,
            given=Given(
                oracle=int(has_oracle),
                original=has_original,
                reference=n_references,
                held_out=n_held_out > 0,
                losses=has_losses,
                groups=n_groups > 0,
            ),
            settings=settings or AuditSettings(),
            provenance={
                "ruler": "0.1.0",
                "python": "3.11.2",
                "numpy": "2.4.0",
                "torch": "2.9.0",
                "transformers": "4.57.1",
                "created_at": "2026-01-15T10:00:00+00:00",
                "layers": layers,
                "pooling": "mean over tokens",
                "weights": {model: f"{number + 11:064x}" for number, model in enumerate(models)},
                "files": {"forget": "data/forget.csv", "retain": "data/retain.csv"},
                "arrays": {
                    model: {
                        side: {"shape": [n, 64], "dtype": "float32", "sha256": f"{seed + n:064x}"}
                        for side, n in (("forget", n_forget), ("retain", n_retain), ("held_out", n_held_out))
                        if n
                    }
                    for model in models
                },
            },
            distributions=_make_distributions(random, records, given, n_held_out, n_retain),
            pairing=Pairing(0.9981, NAN, True, False, 0) if has_oracle else None,
            answers={
                "unlearned": {"retain_accuracy": 0.52 if verdict == "damaged" else 0.973, "forget_accuracy": 0.95},
                "oracle": {"retain_accuracy": 0.975},
            },
            damage=_make_damage(verdict == "damaged") if has_oracle else None,
            privacy=_make_privacy(verdict, "m2" if has_oracle else "m4", n_held_out) if n_held_out else None,
            declared=declared or {},
        )
    )
    assert report.verdict == verdict, f"the numbers give {report.verdict}: {report.reason}"
    return replace(report, needs=NEEDS if verdict == "inconclusive" else [])


def attack(report: Report, verdict: str = "residual", n_flagged: int = 0) -> Report:
    """The report after an attack that had this outcome."""
    after = make_report(verdict, guards=[])
    found = AttackFinding(
        "quantize", "weights were rounded", after.verdict, after.reason, after.metrics, after.guards, n_flagged
    )
    return decide(replace(report, attacks={"quantize": found}))


def _similarities(random: np.random.Generator, n: int, middle: float, spread: float) -> np.ndarray:
    return 1 - (1 - middle) * np.exp(spread * random.normal(size=n))


def _make_records(random, verdict, n, has_oracle, has_original, has_losses, n_groups, ids):
    tilt = {"residual": 1.8, "displaced": 1.6}.get(verdict, 1.0)
    oracle = _similarities(random, n, 1 - 0.004 * tilt, 0.7) if has_oracle else np.full(n, NAN)
    nearest = _similarities(random, n, 1 - 0.0016 / tilt, 0.6)
    p_value = np.clip(random.random(n) ** (3 if tilt > 1 else 1), 1 / 161, 1)
    order = np.argsort(p_value)
    q_value = np.empty(n)
    q_value[order] = np.minimum.accumulate((p_value[order] * n / np.arange(1, n + 1))[::-1])[::-1]
    if verdict == "erased":
        q_value = np.maximum(q_value, 0.2)
    flag = "further from the oracle than held-out records" if has_oracle else "apart from retain records"
    loss = random.gamma(2.0, 0.4, n)
    remaining = random.normal(REMAINS.get(verdict, REMAINS["inconclusive"])["loss"], 0.12, n)
    return pd.DataFrame(
        {
            "id": ids if ids is not None else [f"patient-{number:05d}" for number in random.permutation(n)],
            "group": [f"person {number % n_groups}" for number in range(n)]
            if n_groups
            else pd.Series([None] * n, dtype=object),
            "remaining": remaining,
            "low": remaining - 0.35,
            "high": remaining + 0.35,
            "oracle_similarity": oracle,
            "oracle_gap": oracle - 0.996,
            "shift": random.normal(-0.0005, 0.001, n) if has_original and has_oracle else NAN,
            "nearest_similarity": nearest,
            "nearest_retain": [f"patient-{number:05d}" for number in random.integers(n, 10 * n + 10, n)],
            "percentile_rank": random.random(n),
            "norm_ratio": np.exp(random.normal(0, 0.03, n)) if has_oracle else NAN,
            "loss": loss if has_losses else NAN,
            "loss_gap": loss - random.gamma(2.0, 0.5, n) if has_losses and has_oracle else NAN,
            "p_value": p_value,
            "q_value": q_value,
            "finding": np.where(q_value <= 0.05, flag, ALIKE),
        }
    )


def _make_groups(records: pd.DataFrame) -> pd.DataFrame:
    grouped = records.groupby("group", sort=False)
    means = {
        name: grouped[name].mean().to_numpy()
        for name in ("oracle_similarity", "nearest_similarity", "shift", "loss_gap")
    }
    remaining = grouped["remaining"].mean().to_numpy()
    reach = 0.3 / np.sqrt(grouped.size().to_numpy())
    return pd.DataFrame(
        {
            "group": list(grouped.groups),
            "n_records": grouped.size().to_numpy(),
            "remaining": remaining,
            "low": remaining - reach,
            "high": remaining + reach,
            "at_least": remaining - 0.84 * reach,
            "at_most": remaining + 0.84 * reach,
            "verdict": "inconclusive",
            **means,
            "n_flagged": grouped["q_value"].apply(lambda q: int((q <= 0.05).sum())).to_numpy(),
            "p_value": grouped["p_value"].min().to_numpy(),
            "q_value": grouped["q_value"].min().to_numpy(),
            "finding": grouped["finding"].agg(lambda found: min(found, key=lambda one: one == ALIKE)).to_list(),
        }
    )


def make_remaining(contrast: str, value: float, *, scale="original", layer=None, half=0.09, resolution=22.0):
    """What remains, with an interval of this half width."""
    reach = 0.84 * half
    numbers = value, value - half, value + half, value - reach, value + reach
    return Remaining(*numbers, scale, contrast, layer, 1.2 * resolution, resolution)


def _make_metric(name, verdict, n_forget, n_held_out, has_original, layers):
    contrast = CONTRASTS[name]
    value = VALUES[name]
    nothing = Part(NAN, (NAN, NAN), NAN)
    base = MetricFinding(
        name=name,
        family=contrast.family,
        value=value,
        interval=(value - 0.002, value + 0.002),
        null=NAN,
        p_value=NAN,
        place=nothing,
        spread=nothing,
        tail=nothing,
        control=MetricControl("held-out" if n_held_out else "none", n_forget, n_held_out),
        layer=layers[-1] if contrast.is_by_layer else None,
        paper=None if contrast.paper_null is None else PaperReading(contrast.paper_null, contrast.read_by_paper(value)),
    )
    if not n_held_out:
        return base
    is_seen = name not in ("m4", "norm")
    values = REMAINS.get(verdict, REMAINS["inconclusive"])
    is_found = contrast.decides and (
        (verdict == "residual" and (name in values or name == "m2"))
        or (verdict == "displaced" and name in ("loss", "m4"))
    )
    side = -1 if contrast.residual_side < 0 else 1
    move = {"erased": 0.02, "residual": 0.26, "displaced": -0.3 if name == "loss" else 0.28}.get(verdict, 0.07)
    effect = 0.5 + side * (move if is_found else 0.02)
    half = {"erased": 0.055, "inconclusive": 0.11}.get(verdict, 0.09)
    before = (0.5 + 0.31 * side, 0.0004) if is_seen else (0.53, 0.71)

    def make_part(effect, p_value):
        return Part(effect, (max(0.0, effect - half), min(1.0, effect + half)), p_value if contrast.decides else NAN)

    remaining = _make_scales(name, values, verdict, has_original, base.layer) if contrast.is_ruler else {}
    return replace(
        base,
        null=value + (0.0036 if name == "m2" else -0.03),
        p_value=0.0005 if is_found else 0.412,
        place=make_part(effect, 0.002 if is_found else 0.824),
        spread=make_part(0.54, 0.71),
        tail=make_part(0.51, 0.9) if contrast.is_ruler else nothing,
        control=MetricControl("held-out", n_forget, n_held_out, *(before if has_original else ())),
        remaining=remaining,
        layers=_make_layers(layers, effect, half, remaining) if contrast.is_by_layer else (),
    )


def _make_scales(name, values, verdict, has_original, layer):
    """What remains by scale; the tangent has the original's only."""
    is_loose = verdict not in ("erased", "residual", "displaced")
    how = {"half": 0.21, "resolution": 9.4} if is_loose else {}
    scales = [*(["original"] if has_original else []), *(["members"] if name != "tangent" else [])]
    return {
        scale: make_remaining(
            name, values[name] + (0.01 if scale == "members" else 0.0), scale=scale, layer=layer, **how
        )
        for scale in scales
    }


def _make_layers(layers, effect, half, remaining):
    if len(layers) == 1:
        return ()
    found = []
    for depth, layer in zip((np.linspace(0.1, 1, len(layers)) ** 2).tolist(), layers, strict=True):
        here = 0.5 + (effect - 0.5) * depth
        own = {
            scale: make_remaining(
                one.contrast,
                one.value * depth,
                scale=scale,
                layer=layer,
                half=one.high - one.value,
                resolution=one.resolution,
            )
            for scale, one in remaining.items()
        }
        found.append(LayerFinding(layer, here, (here - half, here + half), 0.4 if depth < 0.5 else 0.002, own))
    return tuple(found)


def _make_damage(is_damaged):
    return Damage(
        similarity=0.41 if is_damaged else 0.93,
        least_similarity=0.7,
        skill=0.12 if is_damaged else 0.99,
        least_skill=0.5,
        is_damaged=is_damaged,
        reason="Retain records no longer resemble the oracle's."
        if is_damaged
        else "Retain records are treated much as the oracle treats them.",
    )


def _make_privacy(verdict, contrast, n_held_out):
    is_proved = verdict in ("residual", "displaced")
    is_rated = n_held_out >= 100
    return Privacy(
        contrast=contrast,
        epsilon=0.84 if is_proved else 0.0,
        confidence=0.95,
        true_positive_rate=(0.15 if is_proved else 0.025) if is_rated else NAN,
        true_positive_interval=((0.057, 0.298) if is_proved else (0.001, 0.132)) if is_rated else (NAN, NAN),
    )


def _make_distributions(random, records, given, n_held_out, n_retain):
    most = 2000
    shown = min(n_retain, most)
    sides = {"forget": None, "retain": shown, **({"held_out": n_held_out} if n_held_out else {})}
    columns = {
        "m1": "oracle_similarity",
        "m2": "oracle_similarity",
        "m3": "shift",
        "m4": "nearest_similarity",
        "norm": "norm_ratio",
        "loss": "remaining",
        "readout": "remaining",
        "tangent": "remaining",
    }
    scores, roc = {}, {}
    for name in given:
        own = records[columns[name] if records[columns[name]].notna().any() else "loss"].to_numpy()[:most]
        middle, width = float(np.median(own)), float(own.std()) or 1e-3
        scores[name] = {
            side: own if n is None else middle + 0.5 * width + width * random.normal(size=n)
            for side, n in sides.items()
        }
        if n_held_out and CONTRASTS[name].decides:
            roc[name] = _rate(-scores[name]["forget"], -scores[name]["held_out"])
    counts = {"forget": np.histogram(random.beta(1.5, 1.2, len(records)), bins=20, range=(0, 1))[0].astype(float)}
    if n_held_out:
        counts["held_out"] = np.histogram(random.random(n_held_out), bins=20, range=(0, 1))[0].astype(float)
    points = {side: random.normal(size=(min(n or len(records), 200), 2)).round(4) for side, n in sides.items()}
    plane = Plane("fc2", points, (0.4183, 0.1271))
    return Distributions(scores=scores, roc=roc, rank_edges=np.linspace(0, 1, 21), rank_counts=counts, plane=plane)


def _rate(forget, held_out):
    cuts = np.r_[np.inf, np.sort(np.r_[forget, held_out])[::-1]]
    return tuple(1 - np.searchsorted(np.sort(side), cuts) / len(side) for side in (held_out, forget))


def say(report):
    return " ".join(str(report).split())


CASES = [
    *({"verdict": verdict} for verdict in VERDICTS),
    {"verdict": "inconclusive", "has_oracle": False, "n_held_out": 0, "has_original": False},
    {"n_groups": 7},
    {"n_layers": 5},
    {
        "verdict": "erased",
        "has_oracle": False,
        "has_original": False,
        "n_references": 2,
        "settings": AuditSettings(scope="outputs"),
    },
    {"verdict": "inconclusive", "has_labels": False, "has_original": False, "guards": []},
    {"has_losses": False, "has_original": False},
    {"n_forget": 3},
    {"n_forget": 1, "has_original": False},
]


def edit(folder: Path, **changes: object) -> None:
    path = folder / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
