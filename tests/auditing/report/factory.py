"""Reports as an audit could give them, made from a few numbers, for every verdict and any size."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import (
    Damage,
    Distributions,
    GuardFinding,
    LayerFinding,
    MetricFinding,
    Pairing,
    Plane,
    Privacy,
    Report,
    Sensitivity,
)
from ruler.auditing.records import ALIKE
from ruler.auditing.settings import AuditSettings

NAN = float("nan")
VERDICTS = ("erased", "residual", "displaced", "damaged", "inconclusive", "invalid")
_EFFECTS = {
    "erased": 0.52,
    "residual": 0.24,
    "displaced": 0.78,
    "damaged": 0.35,
    "inconclusive": 0.43,
    "invalid": 0.31,
}
_REASONS = {
    "erased": "Forget and held-out records are alike within the margin on M2, M4, norm and loss (equivalence p at most "
    "0.004), and the original's forget records were told apart by M2 and loss.",
    "residual": "M2: Forget records lie below held-out ones (AUC 0.240, p = 0.0005), as in the original model.",
    "displaced": "M4: Forget records lie above held-out ones (AUC 0.780, p = 0.0005): this contrast is new.",
    "damaged": "Retain records no longer resemble the oracle's (linear CKA 0.41, at least 0.70 is needed).",
    "inconclusive": "No difference is seen (AUC 0.430, p = 0.412), but one beyond the margin is not ruled out.",
    "invalid": "A guard failed: the unlearned model is identical to the oracle.",
}
NEEDS = [
    "Five oracles retrained from other seeds, given as oracle=[...]: the forget set is not a random draw.",
    "270 forget records more, and held-out records in proportion: 310 in all would show erasure by every contrast, if "
    "it is true.",
    "The original model, given as original=: without it only known members show what the audit can see.",
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
    has_oracle: bool = True,
    has_original: bool = True,
    has_losses: bool = True,
    n_groups: int = 0,
    test: str = "permutation",
    ids: list[str] | None = None,
    guards: list[GuardFinding] | None = None,
    settings: AuditSettings | None = None,
    seed: int = 0,
) -> Report:
    """A report whose numbers hang together well enough to be read."""
    random = np.random.default_rng(seed)
    given = [
        name
        for name, contrast in CONTRASTS.items()
        if all({"oracle": has_oracle, "original": has_original, "losses": has_losses}[need] for need in contrast.needs)
    ]
    records = _make_records(random, verdict, n_forget, has_oracle, has_original, has_losses, n_groups, ids)
    if guards is None:
        guards = {"invalid": [_FAILED, *GUARDS], "erased": [], "inconclusive": [_BLOCKING, *GUARDS]}.get(
            verdict, GUARDS
        )
    layers = [f"transformer.h.{number}" for number in range(n_layers)] if n_layers > 1 else ["fc2"]
    models = ["unlearned", *(["oracle"] if has_oracle else []), *(["original"] if has_original else [])]
    return Report(
        verdict=verdict,
        reason=_REASONS[verdict] if n_held_out else "No held-out records were given, so nothing was tested.",
        metrics={
            name: _make_metric(random, name, verdict, n_forget, n_held_out, has_original, layers, test)
            for name in given
        },
        records=records,
        groups=_make_groups(records) if n_groups else None,
        guards=guards,
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
        needs=NEEDS if verdict == "inconclusive" else [],
        pairing=Pairing(0.9981, NAN, True, False, 0) if has_oracle else None,
        outputs={
            "unlearned": {"retain_accuracy": 0.52 if verdict == "damaged" else 0.973, "forget_accuracy": 0.95},
            "oracle": {"retain_accuracy": 0.975},
        },
        damage=_make_damage(verdict == "damaged") if has_oracle else None,
        privacy=_make_privacy(verdict, "m2" if has_oracle else "m4", n_held_out) if n_held_out else None,
    )


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
    return pd.DataFrame(
        {
            "id": ids if ids is not None else [f"patient-{number:05d}" for number in random.permutation(n)],
            "group": [f"person {number % n_groups}" for number in range(n)]
            if n_groups
            else pd.Series([None] * n, dtype=object),
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
    return pd.DataFrame(
        {
            "group": list(grouped.groups),
            "n_records": grouped.size().to_numpy(),
            **means,
            "n_flagged": grouped["q_value"].apply(lambda q: int((q <= 0.05).sum())).to_numpy(),
            "p_value": grouped["p_value"].min().to_numpy(),
            "q_value": grouped["q_value"].min().to_numpy(),
            "finding": grouped["finding"].agg(lambda found: min(found, key=lambda one: one == ALIKE)).to_list(),
        }
    )


def _make_metric(random, name, verdict, n_forget, n_held_out, has_original, layers, test):
    contrast = CONTRASTS[name]
    value = {"m1": 0.9931, "m2": -0.0041, "m3": -0.0005, "m4": 0.561, "norm": 0.0213, "loss": -0.3127}[name]
    base = MetricFinding(
        name=name,
        value=value,
        interval=(value - 0.002, value + 0.002),
        null=NAN,
        difference=NAN,
        difference_interval=(NAN, NAN),
        effect=NAN,
        effect_interval=(NAN, NAN),
        p_value=NAN,
        equivalence_p_value=NAN,
        margin=0.1,
        control="held-out" if n_held_out else "none",
        verdict="descriptive" if not contrast.decides else "inconclusive",
        reason="It describes." if not contrast.decides else "No held-out records were given, so nothing was tested.",
        n_forget=n_forget,
        n_control=n_held_out,
        minimum_detectable_effect=NAN,
        n_needed=None,
        paper_null=contrast.paper_null,
        paper_reading={"m2": "residual", "m4": "residual"}.get(name, ""),
        layer=layers[-1],
    )
    if not contrast.decides or not n_held_out:
        return base
    is_telling = name == "m2" or verdict in ("erased", "displaced")
    effect = _EFFECTS[verdict] if is_telling else {"m4": 0.55, "norm": 0.53, "loss": 0.46}.get(name, 0.5)
    half = {"erased": 0.055, "inconclusive": 0.11}.get(verdict, 0.09)
    is_seen = name != "m4"
    is_found = verdict in ("residual", "displaced") and is_telling
    before = {"m2": 0.19, "loss": 0.22, "norm": 0.64}.get(name, 0.48)
    share = (effect - 0.5) / (before - 0.5)
    return replace(
        base,
        null=value + (0.0036 if name == "m2" else -0.03),
        difference=-0.0036 if name == "m2" else 0.03,
        difference_interval=(-0.0058, -0.0014) if name == "m2" else (-0.04, 0.10),
        effect=effect,
        effect_interval=(max(0.0, effect - half), min(1.0, effect + half)),
        spread=0.54,
        spread_interval=(0.54 - half, 0.54 + half),
        p_value=0.0005 if is_found else 0.412,
        adjusted_p_value=0.0020 if is_found else 0.824,
        equivalence_p_value=0.004 if verdict == "erased" else 0.871,
        verdict=verdict
        if verdict in ("erased", "invalid") or (is_telling and verdict in ("residual", "displaced"))
        else "inconclusive",
        reason="Forget records differ from held-out records."
        if is_found
        else "Forget and held-out records are alike within the margin."
        if verdict == "erased"
        else "No clear difference was seen.",
        minimum_detectable_effect=0.142,
        n_needed=310,
        test=test,
        sensitivity=Sensitivity(
            "original" if has_original else "known members", before, 0.0004 if is_seen else 0.71, is_seen, name == "m2"
        ),
        original_effect=before if has_original else None,
        share_left=share if is_seen else None,
        share_left_interval=(share - 0.2, share + 0.2) if is_seen else None,
        share_left_upper=share + 0.17 if is_seen else None,
        layers=_make_layers(random, layers, effect, half, before if has_original else None),
    )


def _make_layers(random, layers, effect, half, before):
    if len(layers) == 1:
        return ()
    depths = np.linspace(0.1, 1, len(layers)) ** 2
    found = []
    for depth, layer in zip(depths.tolist(), layers, strict=True):
        here = 0.5 + (effect - 0.5) * depth
        spread = 0.5 + 0.02 * float(random.normal())
        found.append(
            LayerFinding(
                layer=layer,
                effect=here,
                effect_interval=(here - half, here + half),
                spread=spread,
                spread_interval=(spread - half, spread + half),
                original_effect=None if before is None else 0.5 + (before - 0.5) * depth**0.5,
            )
        )
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
        "loss": "loss_gap",
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
    {"n_layers": 5, "test": "hybrid"},
    {"has_losses": False, "has_original": False},
    {"n_forget": 3},
    {"n_forget": 1, "has_original": False},
]


def edit(folder: Path, **changes: object) -> None:
    path = folder / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
