"""Models that `python -m benchmarks faithfulness` measured -> the tables of docs/tofu.md.

`python -m benchmarks faithfulness_table docs/bench/faithfulness.csv` prints them, with `--page docs/tofu.md` they go
there. Further arguments are files models.jsonl, whose rows replace those of the same models in the .csv first; with
`--verdicts` they go to verdicts.csv beside it: models that were audited and not measured otherwise.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure import read_rows
from benchmarks.meta_tables import put_between
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table
from ruler.paper.results import title_of
from ruler.stats.auc import auc_interval, measure_effect

_OURS = {
    "loss_auc_by_one": "**loss contrast**, one oracle",
    "loss_auc": "**loss contrast**, five oracles",
    "m2_auc_by_one": "**M2's contrast**, one oracle",
    "m2_auc": "**M2's contrast**, five oracles",
    "toward_original_auc": "**nearer to the original than to the oracle**",
    "norm_auc_by_one": "**norm contrast**, one oracle",
    "m4_auc_by_one": "**M4's contrast**, without oracle",
}
_PEERS = {
    "uds": "UDS",
    "truth_ratio": "truth ratio",
    "priv_leak": "PrivLeak",
    "extraction_strength": "extraction strength",
    "exact_memorization": "exact memorisation",
    "probability": "probability of the answer",
    "forget_quality": "forget quality",
    "min_k": "Min-K",
    "min_k_plus": "Min-K++",
    "logit_lens": "logit lens",
    "logit_lens_depth": "logit lens, depth",
    "procrustes": "Procrustes distance",
    "cka": "linear CKA",
    "cka_debiased": "linear CKA, unbiased",
}
_KEY = ["data", "fraction", "part", "run", "name"]
_UP = {
    "loss_auc_by_one": lambda value: 1 - value,
    "m2_auc_by_one": lambda value: 1 - value,
    "m4_auc_by_one": lambda value: 1 - value,
    "uds": lambda value: 1 - value,
    "truth_ratio": lambda value: 1 - np.minimum(value, 1),
    **dict.fromkeys(("extraction_strength", "exact_memorization", "probability", "cka"), lambda value: value),
}
"""Metrics between 0 and 1, turned so that they rise with knowledge, as the formulas of robustness want them."""
_USEFUL = 0.8  # share of the oracle's retain accuracy, under which a model does not count
_LAYERS = ("layers", "toward_original")
_VERDICT_HEAD = ("models", "number", "verdict with one oracle", "verdict with five (oracles: with the four others)")
_KINDS = {
    "true": "their true answers",
    "paraphrased": "their answers in other words",
    "perturbed": "their questions, wrong answers",
    "none": "nothing of theirs",
}


def flatten(*paths: Path) -> pd.DataFrame:
    """The rows of files models.jsonl with a column per number; reasons and empty columns left out."""
    rows = []
    for row in (row for path in paths for row in read_rows(path)):
        nested = {name: row.pop(name, {}) for name in ("peers", *_LAYERS)}
        row |= nested["peers"]
        row |= {f"{kind}:{name}": value for kind in _LAYERS for name, value in nested[kind].items()}
        rows.append({name: " ".join(value) if isinstance(value, list) else value for name, value in row.items()})
    table = pd.DataFrame(rows).dropna(axis=1, how="all").sort_values(["part", "name"])
    kept = [name for name in table if not str(name).startswith("reason") and not str(name).endswith("_s")]
    return table[kept]


def add_rows(path: Path, table: pd.DataFrame, run: int = 1) -> None:
    """Put rows into a .csv, six digits each, in place of those of the same models.

    Args:
        run: Models of one run were trained and attacked by the same code, from one original.
    """
    table = table.assign(run=run)
    if path.is_file():
        table = pd.concat([pd.read_csv(path), table], ignore_index=True).drop_duplicates(_KEY, keep="last")
    write_atomically(path, table.sort_values(_KEY).to_csv(index=False, float_format="%.6g"))


def tell_apart(pool: pd.DataFrame, column: str, positive: pd.Series) -> tuple[float, float, float]:
    """AUC, in the better direction, with which a column tells these models from the others; its 95% interval.

    Example:
        >>> pool = pd.DataFrame({"score": [1.0, 2.0, 3.0, 4.0]})
        >>> tell_apart(pool, "score", pd.Series([True, True, False, False]))[0]
        1.0
    """
    parts = [pool.loc[chosen, column].to_numpy(dtype=np.float64) for chosen in (positive, ~positive)]
    effect = max(measure_effect(*parts), measure_effect(*parts[::-1]), key=lambda one: one.value)
    return (effect.value, *auc_interval(effect, 0.05))


def tabulate_trust(models: pd.DataFrame) -> list[str]:
    """How well each metric tells models with the knowledge from models without, and trained ones from untrained."""
    pool = models[models["part"] == "pool"]
    easy, rows = pool[~pool["is_hard"].astype(bool)], []
    for column, title in (_OURS | _PEERS).items():
        value, low, high = tell_apart(pool, column, pool["knows"].astype(bool))
        of_easy = tell_apart(easy, column, easy["knows"].astype(bool))[0]
        trained = tell_apart(pool, column, pool["forget"] != "none")[0]
        rows.append((title, f"{value:.3f} ({low:.2f}-{high:.2f})", f"{of_easy:.3f}", f"{trained:.3f}"))
    asked = ("with the knowledge or without (95% interval)", "the same, easy half", "trained on these authors or not")
    return markdown_table(("metric", *asked), rows)


def tabulate_verdicts(models: pd.DataFrame) -> list[str]:
    """What the audit said of models of each kind, with one oracle and with five."""
    return markdown_table(_VERDICT_HEAD, _list_verdicts(models))


def tabulate_sets(models: pd.DataFrame) -> list[str]:
    """The same for each dataset and forget fraction."""
    rows = [
        (f"{title_of(str(data))}, {float(str(fraction)):.0%}", *row)
        for (data, fraction), part in models.groupby(["data", "fraction"])
        for row in _list_verdicts(part)
    ]
    return markdown_table(("forgotten", *_VERDICT_HEAD), rows)


def _list_verdicts(models: pd.DataFrame) -> list[tuple[str, ...]]:
    pool = models[models["part"].isin(["pool", "verdicts"])]
    references = models[models["part"] == "references"]
    is_original = references["name"] == "original"
    kinds = {"the original": references[is_original], "the oracles, each against the others": references[~is_original]}
    kinds |= {f"trained on {title}": pool[pool["forget"] == kind] for kind, title in _KINDS.items()}
    return [
        (title, str(len(part)), *(_count(part[name]) for name in ("verdict_by_one", "verdict")))
        for title, part in kinds.items()
        if len(part)
    ]


def _count(verdicts: pd.Series) -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts.value_counts().sort_index().items())


def list_attacked(models: pd.DataFrame) -> pd.DataFrame:
    """Rows of attacked models; one that a later run repeated to the digit counts once, oracles in each run."""
    attacked = models[models["part"] == "attacks"]
    is_repeated = attacked.drop(columns="run").duplicated(keep="last") & (attacked["method"] != "oracle")
    return attacked[~is_repeated]


def tabulate_attacks(models: pd.DataFrame) -> list[str]:
    """Verdict and effects of each unlearned model as it is, rounded to four bits, and after relearning."""
    rows = []
    for _, row in list_attacked(models).sort_values(["method", "rate", "run", "name"]).iterrows():
        effects = (f"{row[name]:.3f}" for name in ("loss_auc_by_one", "m2_auc_by_one", "uds"))
        rate = f"{row['rate']:g}" if row["rate"] else ""
        rows.append(
            (
                title_of(row["method"]),
                rate,
                str(row["run"]),
                row["attack"],
                f"{row['retain_accuracy']:.2f}",
                *effects,
                row["verdict_by_one"],
            )
        )
    head = ("model", "rate", "run", "state", "retain accuracy", "loss AUC", "M2 AUC", "UDS", "verdict, one oracle")
    return markdown_table(head, rows)


def tabulate_robustness(models: pd.DataFrame) -> list[str]:
    """By how much each metric changes under attacks on models that keep their use, against the oracle of their run."""
    rows, sizes = [], [0, 0]
    for column, turn in _UP.items():
        shares = list_robustness(models, column, turn)
        values = [[share[name] for share in shares if name in share] for name in ("relearned", "kept", "back")]
        relearned, kept, back = (np.mean(one) for one in values)
        both = 2 / (1 / relearned + 1 / kept) if min(relearned, kept) > 0 else 0.0
        rows.append(((_OURS | _PEERS)[column], *(f"{value:.2f}" for value in (relearned, kept, both, back))))
        sizes = [len(values[0]), len(values[1])]
    asked = (f"R, relearning ({sizes[0]} models)", f"Q, four bits ({sizes[1]} models)", "harmonic mean of R and Q")
    return markdown_table(("metric", *asked, "four bits, before / after"), rows)


def list_robustness(
    models: pd.DataFrame, column: str, turn: Callable[[pd.Series], pd.Series]
) -> list[dict[str, float]]:
    """R and Q of the field's meta-evaluation for each attacked model, and Q the other way round.

    R is the metric's rise by relearning in the oracle over that in the model, at most 1. Beyond the published formula,
    it is 1 where the metric does not rise in the model, and else at least 0.
    """
    shares = []
    for _, run in list_attacked(models).groupby("run"):
        values: dict[tuple[str, float], dict[str, float]] = {}
        skills: dict[tuple[str, float], float] = {}
        rows = zip(
            run["method"], run["rate"].fillna(0), run["attack"], turn(run[column]), run["retain_accuracy"], strict=True
        )
        for method, rate, attack, value, skill in rows:
            values.setdefault((method, rate), {})[attack] = value
            if attack == "plain":
                skills[method, rate] = skill
        oracle = values.pop(("oracle", 0))
        for model, state in sorted(values.items()):
            if skills[model] < _USEFUL * skills["oracle", 0]:
                continue
            before, after = state["plain"], state["quantized"]
            share = {"kept": _divide(after, before), "back": _divide(before, after)}
            if "relearned" in state:
                rises = oracle["relearned"] - oracle["plain"], state["relearned"] - before
                share["relearned"] = max(_divide(*rises), 0.0)
            shares.append(share)
    return shares


def _divide(one: float, other: float) -> float:
    """one / other, at most 1; 1 where the divisor is not positive.

    Example:
        >>> _divide(1.0, 2.0), _divide(2.0, 1.0), _divide(1.0, 0.0), _divide(1.0, -1.0)
        (0.5, 1.0, 1.0, 1.0)
    """
    return min(one / other, 1.0) if other > 0 else 1.0


def list_tables(path: Path) -> dict[str, list[str]]:
    """The tables of docs/tofu.md by name."""
    models, audited = pd.read_csv(path), pd.read_csv(path.with_name("verdicts.csv"))
    return {
        "trust": tabulate_trust(models),
        "verdicts": tabulate_verdicts(models),
        "verdicts_now": tabulate_sets(audited),
        "attacks": tabulate_attacks(models),
        "robustness": tabulate_robustness(models),
    }


def main() -> None:
    """Add rows, and print the tables or put them into the page."""
    parser = argparse.ArgumentParser(prog="benchmarks faithfulness_table")
    parser.add_argument("csv", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--verdicts", action="store_true", help="the models go to verdicts.csv beside the .csv")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--run", type=int, default=1, help="another number for models of another original")
    options = parser.parse_args()
    if options.models:
        add_rows(
            options.csv.with_name("verdicts.csv") if options.verdicts else options.csv,
            flatten(*options.models),
            options.run,
        )
    for name, lines in list_tables(options.csv).items():
        if options.page:
            put_between(options.page, name, lines)
        else:
            print(f"<!-- {name} -->", *lines, "", sep="\n")
