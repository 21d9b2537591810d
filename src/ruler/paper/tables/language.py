"""Causal language models: each method at the rate that keeps the retained authors, beside peers' metrics."""

import json
from typing import TYPE_CHECKING, Any

from ruler.experiment.settings import LANGUAGE_METHODS
from ruler.paper.results import N_SEEDS, is_of_full_size, split_by
from ruler.paper.tables.numbers import Number, summarise

if TYPE_CHECKING:
    import pandas as pd

STUDY = "tofu"
KEPT_SHARE = 0.95
"""A rate is too large for a method if it leaves less than this share of the original's retain accuracy."""

_OURS = ("forget_accuracy", "retain_accuracy", "test_accuracy", "m2_effect", "m4_effect", "loss_effect")
_PEERS = ("uds", "cka", "logit_lens", "truth_ratio", "min_k", "extraction_strength")
_VERDICTS = ("erased", "residual", "displaced", "damaged", "inconclusive")


def compute_language(results: "pd.DataFrame") -> list[Number]:
    """Effects, verdicts and peers' metrics of each method, at its chosen rate, by dataset and forget fraction."""
    found = []
    for keys, runs in split_by(choose_rates(results), "dataset", "forget_fraction", "method"):
        shared: dict[str, Any] = {
            "n_paper": N_SEEDS,
            "study": STUDY,
            "is_comparable": is_of_full_size(runs),
            **keys,
        }
        for metric in ("learning_rate", *_OURS, *_PEERS):
            found += summarise(runs, metric, ["mean", "sd"], **shared)
        judged = runs["verdict"].dropna()
        found += [
            Number(
                column=f"n_{verdict}",
                value=float((judged == verdict).sum()),
                n=len(judged),
                out_of=len(judged),
                **shared,
            )
            for verdict in _VERDICTS
            if len(judged)
        ]
    return found


def choose_rates(results: "pd.DataFrame") -> "pd.DataFrame":
    """Rows of the study with each method at one rate, chosen on retained authors alone, and peers' metrics as columns.

    That is the largest rate at which the mean retain accuracy is at least 95% of the original's; the smallest rate
    where there is none.

    Example:
        >>> import pandas
        >>> rows = {"study": "tofu", "dataset": "tofu", "forget_fraction": 0.1, "peers": None}
        >>> frame = pandas.DataFrame([
        ...     {**rows, "method": "original", "learning_rate": None, "retain_accuracy": 0.8},
        ...     {**rows, "method": "npo", "learning_rate": 1e-5, "retain_accuracy": 0.79},
        ...     {**rows, "method": "npo", "learning_rate": 5e-5, "retain_accuracy": 0.5},
        ... ])
        >>> choose_rates(frame)["learning_rate"].tolist()
        [nan, 1e-05]
    """
    import pandas as pd

    rows = results[results["study"] == STUDY]
    kept = [rows[rows["learning_rate"].isna()]]
    for _, part in rows.groupby(["dataset", "forget_fraction"]):
        least = KEPT_SHARE * part.loc[part["method"] == "original", "retain_accuracy"].mean()
        for _, runs in part[part["learning_rate"].notna()].groupby("method"):
            means = runs.groupby("learning_rate")["retain_accuracy"].mean()
            fitting = means[means >= least]
            rate = fitting.index.max() if len(fitting) else means.index.min()
            kept.append(runs[runs["learning_rate"] == rate])
    chosen = pd.concat(kept, ignore_index=True)
    texts = chosen["peers"] if "peers" in chosen else pd.Series(None, index=chosen.index, dtype=object)
    peers = pd.DataFrame([json.loads(text) if isinstance(text, str) else {} for text in texts], index=chosen.index)
    return chosen.join(peers.reindex(columns=_PEERS).astype(float))


def list_layers(results: "pd.DataFrame") -> "pd.DataFrame":
    """M2's effect by layer: one row per dataset, fraction, method, seed and layer, layers numbered in forward order."""
    import pandas as pd

    chosen = choose_rates(results)
    points = []
    for row in chosen.to_dict("records"):
        text = row.get("layers")
        for place, value in enumerate(json.loads(text).values() if isinstance(text, str) else ()):
            keys = {name: row[name] for name in ("dataset", "forget_fraction", "method", "seed")}
            points.append({**keys, "layer": place, "value": value})
    order = [*LANGUAGE_METHODS, "original"]
    frame = pd.DataFrame(points, columns=["dataset", "forget_fraction", "method", "seed", "layer", "value"])
    return frame[frame["method"].isin(order)]
