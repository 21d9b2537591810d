"""Tables 12 to 14 and clinical text with the controls that the paper lacks; causal language models beside peers."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ruler.data import DATASETS, TabularSet
from ruler.experiment.settings import LANGUAGE_METHODS
from ruler.paper.published import load_table
from ruler.paper.results import CONDITION, LEAKING_SET, N_SEEDS, is_of_full_size, main_rows, rows_of, split_by
from ruler.paper.tables.numbers import NO_SPREAD, NOT_MEASURED, Number, state, summarise
from ruler.stats.intervals import Interval, combine_p_values, difference_interval, mean_interval

if TYPE_CHECKING:
    import pandas as pd

_TRAIN_SHARE = 0.8
_BOTH = ("original", "oracle")
_MEAN_SD = ("mean", "sd")

STUDY = "tofu"
KEPT_SHARE = 0.95
"""A rate is too large for a method if it leaves less than this share of the original's retain accuracy."""

_OURS = ("forget_accuracy", "retain_accuracy", "test_accuracy", "m2_effect", "m4_effect", "loss_effect")
_PEERS = ("uds", "cka", "logit_lens", "truth_ratio", "min_k", "extraction_strength")
_VERDICTS = ("erased", "residual", "displaced", "damaged", "inconclusive")


def compute_conditions(results: "pd.DataFrame", table: str, study: str) -> list[Number]:
    """M4, M2 and accuracy of each condition of a study, N = 5, with the published number beside ours."""
    published = load_table(table)
    quoted = dict(list(published[published["study"] == study].groupby(list(CONDITION))))
    found = []
    for keys, runs in split_by(main_rows(results, study), *CONDITION):
        shared: dict[str, Any] = {"n_paper": N_SEEDS, "study": study, **keys}
        numbers = summarise(runs, ("m4", "m2"), _MEAN_SD, **shared)
        numbers += summarise(runs, ("m4_held_out", "test_accuracy", "n_forget"), ("mean",), **shared)
        found += _annotate(numbers, runs)
        if (part := quoted.get(tuple(keys.values()))) is not None:
            values = dict(zip(part["column"] + "_paper", part["paper"], strict=True))
            found += state(values, n=len(runs), **shared)
    return found


def compute_text(results: "pd.DataFrame") -> list[Number]:
    """The means and ranges that section 5.5 states."""
    found = []
    shared: dict[str, Any] = {"n_paper": N_SEEDS, "source": "section 5.5"}
    for study, metrics in (("large-tabular", ["m4"]), ("faces", ["m4"]), ("clinical", ["m2", "m4"])):
        for keys, runs in split_by(main_rows(results, study), *CONDITION):
            found += _annotate(summarise(runs, metrics, _MEAN_SD, study=study, **shared, **keys), runs)
    for keys, runs in split_by(main_rows(results, "images"), "architecture", "forget_fraction", "method"):
        found += _find_range(runs, ["dataset"], n_means=3, study="images", **keys)
    faces = main_rows(results, "faces")
    kept = faces[faces["method"].isin(["gradient_ascent", "fine_tuning"])]
    for keys, runs in split_by(kept, "dataset", "architecture"):
        pair = {"method": "gradient_ascent", "other_method": "fine_tuning"}
        found += _find_range(runs, ["method", "forget_fraction"], n_means=6, study="faces", **pair, **keys)
    return found


def _find_range(runs: "pd.DataFrame", over: list[str], *, n_means: int, **keys: Any) -> list[Number]:
    """Lowest and highest mean over these keys, each with the spread of its runs."""
    groups = runs.dropna(subset=["m4"]).groupby(over)["m4"].agg(["mean", "std", "size"])
    if groups.empty:
        return []
    values = {}
    for name, place in (("lowest", groups["mean"].argmin()), ("highest", groups["mean"].argmax())):
        values[f"m4_{name}"], values[f"m4_{name}_sd"], _ = map(float, groups.iloc[int(place)])
    keys |= {"n": int(groups["size"].sum()), "n_paper": N_SEEDS * n_means, "source": "section 5.5"}
    return state(values, NO_SPREAD, is_comparable=is_of_full_size(runs), **keys)


def tell_size(dataset: str, runs: "pd.DataFrame") -> str:
    """How the rows of a dataset differ in number from the paper's; empty where they do not."""
    entry = DATASETS.get(dataset)
    expected = entry.paper_rows if isinstance(entry, TabularSet) else 0
    if not expected or runs.empty:
        return ""
    n_rows = float(round((runs["n_forget"] / runs["forget_fraction"]).median() / _TRAIN_SHARE, -2))
    return "" if n_rows >= 0.98 * expected else f"about {n_rows:,.0f} rows, not {expected:,}"


def _annotate(numbers: list[Number], runs: "pd.DataFrame") -> list[Number]:
    size, is_full = tell_size(numbers[0].dataset, runs), is_of_full_size(runs)
    return [replace(number, note=number.note or size, is_comparable=is_full) for number in numbers]


def compute_face_controls(results: "pd.DataFrame") -> list[Number]:
    """M4 of the forgotten identities before unlearning, beside the paper's and four controls, by fraction and choice.

    The oracle never saw them; held-out identities neither model saw; placebo sets are other identities of about the
    same number of images in the forget role, and the permutation test asks how extreme the forgotten ones are among
    them. p-values of seeds are combined by a rule that holds whatever their dependence.
    """
    found = []
    by = ("dataset", "architecture", "forget_choice", "forget_fraction")
    for keys, runs in split_by(rows_of(results, "faces", _BOTH), *by):
        shared: dict[str, Any] = {"n_paper": N_SEEDS, "study": "faces", **keys}
        of_model = {method: runs[runs["method"] == method] for method in _BOTH}
        original = of_model["original"]
        means = ("n_groups", "n_forget", "m4_placebo", "m4_placebo_low", "m4_placebo_high")
        found += summarise(original, ("m4_held_out",), _MEAN_SD, **shared)
        found += summarise(original, means, ("mean",), **shared)
        found += _state_interval("m4_difference", pair_models(runs), **shared)
        found += _state_published(original, keys, n=len(original), **shared)
        for method, part in of_model.items():
            found += summarise(part, ("m4",), _MEAN_SD, name=f"m4_{method}", **shared)
            known = part["m4_placebo_p"].dropna()
            ends = {f"m4_{method}_p_{end}": float(known.agg(end)) for end in ("median", "min", "max")}
            ends[f"m4_{method}_p_combined"] = combine_p_values(known.to_numpy())
            found += state(ends, NOT_MEASURED, n=len(known), **shared)
    return found


def compute_clinical_leak(results: "pd.DataFrame") -> list[Number]:
    """M4 when documents are split by distinct text, when they are split by row, and the difference."""
    rows = rows_of(results, "clinical", _BOTH)
    if LEAKING_SET not in set(rows["dataset"]):
        return []
    found = []
    for keys, runs in split_by(rows, "architecture", "forget_fraction", "method"):
        shared: dict[str, Any] = {"n_paper": N_SEEDS, "study": "clinical", **keys}
        is_leaking = runs["dataset"] == LEAKING_SET
        distinct, by_row = runs[~is_leaking], runs[is_leaking]
        found += summarise(distinct, ("m4",), _MEAN_SD, name="m4_distinct", **shared)
        found += summarise(by_row, ("m4",), _MEAN_SD, name="m4_rows", **shared)
        found += _state_interval("m4_leak", difference_interval(by_row["m4"], distinct["m4"]), **shared)
    return found


def pair_models(runs: "pd.DataFrame") -> Interval:
    """M4 of the original minus M4 of the oracle of the same seed and forget set, over seeds."""
    table = runs[runs["method"].isin(_BOTH)].pivot_table(index=["seed", "forget_seed"], columns="method", values="m4")
    both = table.reindex(columns=list(_BOTH))
    return mean_interval((both["original"] - both["oracle"]).to_numpy())


def _state_interval(column: str, interval: Interval, **shared: Any) -> list[Number]:
    ends = {column: interval.value, f"{column}_low": interval.low, f"{column}_high": interval.high}
    return state(ends, NO_SPREAD if interval.n else NOT_MEASURED, n=interval.n, **shared)


def _state_published(original: "pd.DataFrame", keys: Mapping[str, Any], **shared: Any) -> list[Number]:
    """The paper's M4 of randomly chosen faces, and 1 where the range of placebo sets holds it, 0 where it does not."""
    table = load_table("14")
    is_chosen = (table["column"] == "m4_mean") & (table["method"] == "original")
    for key in ("dataset", "architecture", "forget_fraction"):
        is_chosen &= table[key] == keys[key]
    if keys["forget_choice"] != "random" or not is_chosen.any():
        return []
    paper = float(table.loc[is_chosen, "paper"].iloc[0])
    low, high = (float(original[f"m4_placebo_{end}"].mean()) for end in ("low", "high"))
    holds = math.nan if math.isnan(low + high) else float(low <= paper <= high)
    return state({"m4_original_mean_paper": paper, "m4_placebo_holds_paper": holds}, NOT_MEASURED, **shared)


def compute_language(results: "pd.DataFrame") -> list[Number]:
    """Effects, verdicts and peers' metrics of each method, at its chosen rate, by dataset and forget fraction."""
    found = []
    for keys, runs in split_by(choose_rates(results), "dataset", "forget_fraction", "method"):
        keys |= {"n_paper": N_SEEDS, "study": STUDY, "is_comparable": is_of_full_size(runs)}
        found += summarise(runs, ("learning_rate", *_OURS, *_PEERS), _MEAN_SD, **keys)
        judged = runs["verdict"].dropna()
        if n := len(judged):
            counts = {f"n_{verdict}": float((judged == verdict).sum()) for verdict in _VERDICTS}
            found += state(counts, n=n, out_of=n, **keys)
    return found


def choose_rates(results: "pd.DataFrame") -> "pd.DataFrame":
    """Rows of the study with each method at one rate, chosen on retained authors alone, and peers' metrics as columns.

    That is the largest rate at which the mean retain accuracy is at least 95% of the original's; the smallest rate
    where there is none.
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
