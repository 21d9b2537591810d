"""Measures the audit's false alarms and power where the truth is known, and writes docs/statistics.md's tables.

Run `python tools/calibrate.py` (about 20 minutes on one core; finished parts are kept in build/calibration and not run
again; `--quick` for a glance). Needs the tabular data: see RULER_DATA.
"""

import argparse
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measured import (
    Row,
    tabulate_null,
    tabulate_power,
    tabulate_small,
    tabulate_uniformity,
    tabulate_unpaired,
    write_tables,
)
from scipy.stats import norm, ttest_1samp
from worlds import FAST, FASTER, POWER_SETS, SIZES, SYNTHETIC, memorised, perfect, perfect_unpaired

from ruler.auditing import AuditSettings, gather_evidence
from ruler.auditing.conclusions import conclude_metrics
from ruler.auditing.verdict import adjust_deciding, decide_overall
from ruler.core.files import write_atomically
from ruler.metrics import calibration_gap
from ruler.stats.equivalence import minimum_detectable_effect
from ruler.stats.permutation import compare_samples

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "statistics.md"
Job = tuple[str, Callable[[], Any]]


def judge(given: dict[str, Any], settings: AuditSettings = FAST) -> Row:
    """What the audit says, guards left out: here the evidence is sound by construction."""
    evidence = gather_evidence(**given, settings=settings)
    metrics = adjust_deciding(conclude_metrics(evidence))
    overall, _ = decide_overall(metrics, [], evidence.settings)
    row: Row = {"overall": overall}
    for name in ("m2", "m4"):
        one = metrics[name]
        row |= {name: one.verdict, f"{name}_p": one.p_value, f"{name}_value": one.value, f"{name}_effect": one.effect}
        row |= {f"{name}_share_left": one.share_left, f"{name}_mde": one.minimum_detectable_effect}
    return row


def judge_null(given: dict[str, Any]) -> Row:
    """Our verdict, that of the placebo control, and the paper's rules, on records that were never remembered."""
    row = judge(given)
    no_control = {**given, "unlearned": given["unlearned"][:2], "oracle": given["oracle"][:2]}
    if isinstance(given.get("groups"), dict):
        no_control["groups"] = {side: given["groups"][side] for side in ("forget", "retain")}
    placebo = judge(no_control, FASTER)
    (forget, retain, _), (oracle_forget, oracle_retain, _) = given["unlearned"], given["oracle"]
    gaps = calibration_gap(forget, oracle_forget, retain, oracle_retain)
    z = (row["m4_value"] - 0.5) * np.sqrt(12 * len(forget))
    return row | {
        "placebo_m2": placebo["m2"],
        "placebo_m4": placebo["m4"],
        "paper_m2_negative": bool(gaps.mean() < 0),
        "paper_m2_rejects": bool(ttest_1samp(gaps, 0.0).pvalue <= 0.05) if np.ptp(gaps) else False,
        "paper_m4_rejects": bool(abs(z) > norm.ppf(0.975)),
    }


def measure_unpaired(key: str, seed: int) -> Row:
    """False alarms against an oracle of other initial weights: plain, and aligned."""
    given = perfect_unpaired(key, seed)
    forced = judge(given, replace(FAST, align="never"))
    return judge(given) | {"plain_m2": forced["m2"], "plain_m2_value": forced["m2_value"]}


def measure_small(n_forget: int, seed: int) -> Row:
    """Nothing remembered; and an effect of just the minimum detectable size: is it found as often as promised?"""
    rng = np.random.default_rng([n_forget, seed])
    control = rng.normal(size=2 * n_forget + 100)
    contrast = compare_samples(rng.normal(size=n_forget), control, n_permutations=999)
    effect = minimum_detectable_effect(contrast, alpha=0.05, power=0.8)
    moved = rng.normal(size=n_forget) + np.sqrt(2) * norm.ppf(min(0.5 + effect, 1 - 1e-6))
    found = compare_samples(moved, control, n_permutations=999)
    return {"mde": effect, "p": contrast.p_value, "p_moved": found.p_value}


def run_part(name: str, jobs: list[Job], folder: Path, pool: Executor) -> list[Row]:
    """Rows of one part of the study, from its file if it is there and whole."""
    path = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-{len(jobs)}.json"
    if path.exists():
        kept: list[Row] = json.loads(path.read_text())
        return kept
    started = time.monotonic()
    labels, calls = zip(*jobs, strict=True)
    found = [rows if isinstance(rows, list) else [rows] for rows in pool.map(_call, calls)]
    rows = [{"part": label, **row} for label, some in zip(labels, found, strict=True) for row in some]
    write_atomically(path, json.dumps(rows))
    print(f"{name}: {len(jobs)} jobs in {time.monotonic() - started:.0f} s", flush=True)
    return rows


def _call(job: Callable[[], Any]) -> Any:
    return job()


def plan(scale: int) -> dict[str, list[Job]]:
    """Every part of the study: its name and its jobs."""
    parts: dict[str, list[Job]] = {}
    for key in SIZES:
        parts[f"null {key}"] = [(key, partial(_null_of_table, key, seed)) for seed in range(120 // scale)]
    for name in SYNTHETIC:
        parts[f"null {name}"] = [(name, partial(_null_of_synthetic, name, seed)) for seed in range(300 // scale)]
    for key in POWER_SETS:
        parts[f"power {key}"] = [(key, partial(_power_of_table, key, seed)) for seed in range(20 // scale)]
    for key in ("breast_cancer", "german_credit"):
        parts[f"unpaired {key}"] = [(key, partial(measure_unpaired, key, seed)) for seed in range(100 // scale)]
    for n in (5, 10, 20, 50, 100, 200):
        parts[f"small {n}"] = [(str(n), partial(measure_small, n, seed)) for seed in range(400 // scale)]
    return parts


def _null_of_table(key: str, seed: int) -> Row:
    return judge_null(perfect(key, seed))


def _null_of_synthetic(name: str, seed: int) -> Row:
    return judge_null(SYNTHETIC[name](seed))


def _power_of_table(key: str, seed: int) -> list[Row]:
    return [{"method": method, **judge(given)} for method, given in memorised(key, seed)]


def make_tables(rows: dict[str, list[Row]]) -> dict[str, str]:
    """The page's tables, by the name of their markers."""

    def collect(kind: str) -> list[Row]:
        return [row for part, some in rows.items() if part.startswith(kind) for row in some]

    power = collect("power")
    methods = list(dict.fromkeys(row["method"] for row in power))
    by_method = [{**row, "part": method} for method in methods for row in power if row["method"] == method]
    return {
        "null": tabulate_null(collect("null"), SIZES),
        "uniformity": tabulate_uniformity([row for row in collect("null") if row["part"] in SIZES]),
        "power": tabulate_power(by_method),
        "power by set": tabulate_power([row for row in power if row["method"] == methods[0]]),
        "unpaired": tabulate_unpaired(collect("unpaired")),
        "small": tabulate_small(collect("small")),
    }


def main() -> None:
    """Run what is not there yet, then write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the audits, tables printed and not written")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "calibration")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    parts = plan(10 if options.quick else 1)
    with ProcessPoolExecutor(options.jobs, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        rows = {name: run_part(name, jobs, options.cache, pool) for name, jobs in parts.items()}
    tables = make_tables(rows)
    if options.quick:
        print("\n\n".join(f"{name}\n{table}" for name, table in tables.items()))
    else:
        write_tables(PAGE, tables)


if __name__ == "__main__":
    main()
