"""Reports as an audit could give them, made from a few numbers, for every verdict and any size."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ruler.auditing.findings import Distributions, GuardFinding, MetricFinding, Pairing, Report
from ruler.auditing.records import ALIKE
from ruler.auditing.settings import AuditSettings

NAN = float("nan")
VERDICTS = ("erased", "residual", "displaced", "inconclusive", "invalid")
_EFFECTS = {"erased": 0.52, "residual": 0.24, "displaced": 0.78, "inconclusive": 0.43, "invalid": 0.31}
_REASONS = {
    "erased": "Forget and held-out records are alike within the margin on M2 and M4 (equivalence p at most 0.004).",
    "residual": "M2: Forget records lie below their control (AUC 0.240, p = 0.0005), as in the original model.",
    "displaced": "M4: Forget records lie above their control (AUC 0.780, p = 0.0005): this contrast is new.",
    "inconclusive": "No difference is seen (AUC 0.430, p = 0.412), but one beyond the margin is not ruled out.",
    "invalid": "A guard failed: the unlearned model is identical to the oracle.",
}
GUARDS = [
    GuardFinding(
        "near_duplicates",
        "warn",
        "3 of 40 forget records have a near-duplicate among the retain records (similarity above 0.9999).",
        "Forget the duplicates too, or take these records out of the forget set.",
    ),
    GuardFinding("small_forget_set", "note", "40 forget records find an AUC of 0.63 or more.", "Add forget records."),
]


def make_report(
    verdict: str = "residual",
    *,
    n_forget: int = 40,
    n_held_out: int = 160,
    n_retain: int = 400,
    has_oracle: bool = True,
    has_original: bool = True,
    n_groups: int = 0,
    ids: list[str] | None = None,
    guards: list[GuardFinding] | None = None,
    seed: int = 0,
) -> Report:
    """A report whose numbers hang together well enough to be read."""
    random = np.random.default_rng(seed)
    records = _make_records(random, verdict, n_forget, has_oracle, has_original, n_groups, ids)
    failed = [
        GuardFinding(
            "identical_models",
            "fail",
            "Unlearned and oracle embeddings are the same array.",
            "Give the unlearned model.",
        )
    ]
    chosen = (
        guards
        if guards is not None
        else (failed if verdict == "invalid" else []) + (GUARDS if verdict != "erased" else [])
    )
    return Report(
        verdict=verdict,
        reason=_REASONS[verdict],
        metrics=_make_metrics(verdict, n_forget, n_held_out, has_oracle, has_original),
        records=records,
        groups=_make_groups(records) if n_groups else None,
        guards=chosen,
        settings=AuditSettings(),
        provenance={
            "ruler": "0.1.0",
            "python": "3.11.2",
            "numpy": "2.4.0",
            "created_at": "2026-01-15T10:00:00+00:00",
            "arrays": {
                model: {
                    side: {"shape": [n, 64], "dtype": "float32", "sha256": f"{seed + n:064x}"}
                    for side, n in (("forget", n_forget), ("retain", n_retain), ("held_out", n_held_out))
                    if n
                }
                for model in ("unlearned", "oracle", "original")
                if model == "unlearned" or {"oracle": has_oracle, "original": has_original}[model]
            },
        },
        distributions=_make_distributions(random, records, n_held_out, n_retain, has_oracle, verdict),
        pairing=Pairing(0.9981, NAN, True, False, 0) if has_oracle else None,
        outputs={
            "unlearned": {"retain_accuracy": 0.973, "forget_accuracy": 0.95},
            "oracle": {"retain_accuracy": 0.975},
        },
    )


def _similarities(random: np.random.Generator, n: int, middle: float, spread: float) -> np.ndarray:
    return 1 - (1 - middle) * np.exp(spread * random.normal(size=n))


def _make_records(random, verdict, n, has_oracle, has_original, n_groups, ids):
    tilt = {"residual": 1.8, "displaced": 1.6}.get(verdict, 1.0)
    oracle = _similarities(random, n, 1 - 0.004 * tilt, 0.7) if has_oracle else np.full(n, NAN)
    nearest = _similarities(random, n, 1 - 0.0016 / tilt, 0.6)
    p_value = np.clip(random.random(n) ** (3 if tilt > 1 else 1), 1 / 161, 1)
    order = np.argsort(p_value)
    q_value = np.empty(n)
    q_value[order] = np.minimum.accumulate((p_value[order] * n / np.arange(1, n + 1))[::-1])[::-1]
    flag = "further from the oracle than the control" if has_oracle else "apart from retain records"
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
            "oracle_p_value": random.random(n) if has_oracle else NAN,
            "nearest_p_value": random.random(n),
            "p_value": p_value,
            "q_value": q_value,
            "finding": np.where(q_value <= 0.05, flag, ALIKE),
        }
    )


def _make_groups(records: pd.DataFrame) -> pd.DataFrame:
    grouped = records.groupby("group", sort=False)
    return pd.DataFrame(
        {
            "group": list(grouped.groups),
            "n_records": grouped.size().to_numpy(),
            "oracle_similarity": grouped["oracle_similarity"].mean().to_numpy(),
            "nearest_similarity": grouped["nearest_similarity"].mean().to_numpy(),
            "shift": grouped["shift"].mean().to_numpy(),
            "n_flagged": grouped["q_value"].apply(lambda q: int((q <= 0.05).sum())).to_numpy(),
            "p_value": grouped["p_value"].min().to_numpy(),
            "q_value": grouped["q_value"].min().to_numpy(),
            "finding": grouped["finding"].first().to_list(),
        }
    )


def _make_metrics(verdict, n_forget, n_held_out, has_oracle, has_original):
    control = "held-out" if n_held_out else "placebo"
    metrics = {}
    for name in ("m1", "m2", "m3", "m4"):
        if (name != "m4" and not has_oracle) or (name == "m3" and not has_original):
            continue
        metrics[name] = _make_metric(name, verdict, control, n_forget, n_held_out or n_forget, has_original)
    return metrics


def _make_metric(name, verdict, control, n_forget, n_control, has_original):
    value = {"m1": 0.9931, "m2": -0.0041, "m3": -0.0005, "m4": 0.561}[name]
    paper_null = {"m1": None, "m2": 0.0, "m3": 0.0, "m4": 0.5}[name]
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
        control="none",
        verdict="descriptive",
        reason="Has no null of its own: read it beside M2." if name == "m1" else "Says which way the records moved.",
        n_forget=n_forget,
        n_control=0,
        minimum_detectable_effect=NAN,
        n_needed=None,
        paper_null=paper_null,
        paper_reading={"m1": "", "m2": "residual", "m3": "", "m4": "residual"}[name],
    )
    if name in ("m1", "m3"):
        return base
    effect = _EFFECTS[verdict] if name == "m2" or verdict in ("erased", "displaced") else 0.55
    half = {"erased": 0.055, "inconclusive": 0.11}.get(verdict, 0.09)
    return replace(
        base,
        null=value + (0.0036 if name == "m2" else -0.03),
        difference=-0.0036 if name == "m2" else 0.03,
        difference_interval=(-0.0058, -0.0014) if name == "m2" else (-0.04, 0.10),
        effect=effect,
        effect_interval=(max(0.0, effect - half), min(1.0, effect + half)),
        p_value=0.0005 if verdict in ("residual", "displaced") else 0.412,
        adjusted_p_value=0.0010 if verdict in ("residual", "displaced") else 0.412,
        equivalence_p_value=0.004 if verdict == "erased" else 0.871,
        control=control,
        verdict=verdict if name == "m2" or verdict in ("erased", "invalid") else "inconclusive",
        reason="The forget records differ from the control."
        if verdict in ("residual", "displaced")
        else "No clear difference was seen.",
        n_control=n_control,
        minimum_detectable_effect=0.142,
        n_needed=310,
        original_effect=0.19 if has_original else None,
        share_left=0.84 if has_original else None,
        share_left_interval=(0.61, 1.07) if has_original else None,
    )


def _make_distributions(random, records, n_held_out, n_retain, has_oracle, verdict):
    most = 2000
    shown = min(n_retain, most)
    oracle = {
        "forget": records["oracle_similarity"].to_numpy()[:most],
        "retain": _similarities(random, shown, 0.9972, 0.5),
    }
    nearest = {
        "forget": records["nearest_similarity"].to_numpy()[:most],
        "retain": _similarities(random, shown, 0.9986, 0.6),
    }
    counts = {"forget": np.histogram(random.beta(1.5, 1.2, len(records)), bins=20, range=(0, 1))[0].astype(float)}
    if n_held_out:
        oracle["held_out"] = _similarities(random, n_held_out, 0.996, 0.6)
        nearest["held_out"] = _similarities(random, n_held_out, 0.9984, 0.6)
        counts["held_out"] = np.histogram(random.random(n_held_out), bins=20, range=(0, 1))[0].astype(float)
    return Distributions(
        oracle_similarity=oracle if has_oracle else {},
        nearest_similarity=nearest,
        rank_edges=np.linspace(0, 1, 21),
        rank_counts=counts,
    )
