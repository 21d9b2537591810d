"""Made-up rows of the study of causal language models."""

import json
import math

import pandas as pd

from ruler.paper.results import REQUIRED

BASE = {
    **dict.fromkeys(REQUIRED, math.nan),
    "study": "tofu",
    "dataset": "tofu",
    "engine": "diagnostic",
    "architecture": "causal_lm",
    "forget_fraction": 0.1,
    "batch_size": 32,
    "forget_seed": 999,
    "n_forget": 400,
}


def make_row(method: str, seed: int, rate: float, retain: float, verdict: str | None) -> dict[str, object]:
    found = {"method": method, "seed": seed, "learning_rate": rate, "retain_accuracy": retain, "verdict": verdict}
    audited = {"m2_effect": 0.1 + 0.2 * seed, "loss_effect": 0.2, "m4_effect": 0.5}
    peers = {"uds": 0.25 * seed, "truth_ratio": None}
    layers = {"model.layers.0": 0.5, "head": 0.3}
    return {**BASE, **found, **audited, "peers": json.dumps(peers), "layers": json.dumps(layers)}


def make_rows() -> pd.DataFrame:
    """Two seeds of the original, the oracle and two methods at two rates."""
    rows = []
    for seed in (0, 1):
        rows.append(make_row("original", seed, math.nan, 0.8, "residual"))
        rows.append({**make_row("oracle", seed, math.nan, 0.8, None), "peers": None, "layers": None})
        rows.append(make_row("npo", seed, 1e-5, 0.79, "residual"))
        rows.append(make_row("npo", seed, 5e-5, 0.77, "erased" if seed else "inconclusive"))
        rows.append(make_row("rmu", seed, 1e-5, 0.5, "residual"))
        rows.append(make_row("rmu", seed, 5e-5, 0.4, "damaged"))
    return pd.DataFrame(rows)
