"""How do the audit's verdicts fall on models that unlearning broke, and on models that still work?

Trains, unlearns and audits models of the diagnostic studies, and sets verdicts beside what docs/results.parquet records
as broken: conditions whose mean retain accuracy is less than half of the original's. These are 14 in `images`, 2 in
`faces`, 3 in `clinical` and 2 in `large-tabular`, of five models each, 105 models in all. The cut under which a model
counts as damaged is validated on them (docs/statistics.md).

Run `python tools/damage_study.py images faces --device cuda --jobs 8 --keep build/damage --out build/damage`. The same
command again resumes, also after `--seconds` ran out. Needs RULER_DATA; `--smoke` is a trial on few records.
"""

import argparse
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ruler.core.errors import RulerError
from ruler.experiment.executors import LocalExecutor
from ruler.experiment.run import RESULTS_FILE, STUDY_FILE, Progress, RunSettings, run_studies
from ruler.experiment.settings import StudySettings
from ruler.experiment.store import load_results
from ruler.experiment.studies import STUDIES, narrow_studies
from ruler.paper.results import CONDITION, check_results, gather_conditions

RECORDED = Path(__file__).resolve().parents[1] / "docs" / "results.parquet"
PAIRS = "oracle-pairs"
PARTS = {
    "images": STUDIES["images"],
    "large-tabular": replace(
        STUDIES["large-tabular"],
        datasets=("covertype",),
        architectures=("residual_mlp", "ft_transformer"),
        methods=("gradient_ascent", "fine_tuning"),
    ),
    "faces": replace(STUDIES["faces"], forget_choices=("random",), methods=("gradient_ascent", "fine_tuning", "scrub")),
    "clinical": replace(STUDIES["clinical"], datasets=("mtsamples",), methods=("gradient_ascent", "fine_tuning")),
    PAIRS: replace(
        STUDIES["images"],
        name=PAIRS,
        methods=(),
        seeds=(0, 1, 2),
        has_reference_rows=False,
        compares_oracles=True,
    ),
}
"""The whole study of images; of the others, the broken conditions and one method that breaks nothing; and retrained
models judged against others: what a model that works may look like."""

_LINE_EVERY_S = 30.0


class OutOfTimeError(Exception):
    """Raised when the seconds are over; finished cells are in the store."""


def choose_parts(
    names: Sequence[str], *, datasets: Sequence[str], n_seeds: int | None, is_smoke: bool
) -> list[StudySettings]:
    """The named parts on these datasets and seeds; parts that can run on none of the datasets are left out."""
    chosen = []
    for part in (PARTS[name] for name in names):
        seeds = part.seeds[: 1 + part.compares_oracles] if is_smoke else part.seeds[:n_seeds]
        kept = tuple(key for key in part.datasets if not datasets or key in datasets)
        if kept:
            small = replace(part, seeds=seeds, size="smoke" if is_smoke else part.size)
            chosen += narrow_studies((small,), datasets=kept)
    return chosen


def run_parts(studies: Sequence[StudySettings], settings: RunSettings, seconds: float) -> None:
    """Run what has no row yet until the seconds are over."""
    ends_s = time.monotonic() + seconds
    next_s = 0.0

    def look(now: Progress) -> None:
        nonlocal next_s
        if time.monotonic() >= ends_s and now.share < 1:
            raise OutOfTimeError
        if time.monotonic() >= next_s or now.share == 1:
            next_s = time.monotonic() + _LINE_EVERY_S
            print(f"{now.n_done} of {now.n_cells} cells, {now.share:.0%}", flush=True)

    (settings.out / STUDY_FILE).unlink(missing_ok=True)  # which a resumed run would need pydantic to read
    try:
        summary = run_studies(studies, settings, on_progress=look)
    except OutOfTimeError:
        print("Out of time: run the same command again to resume.")
        return
    print(f"Whole: {summary.n_done} of {summary.n_cells} cells.")
    for cell, error in summary.failures.items():
        print(f"failed: {cell.study} {cell.dataset} {cell.architecture} {cell.method} seed {cell.seed}: {error}")


def mark_broken(rows: pd.DataFrame, recorded: pd.DataFrame) -> pd.DataFrame:
    """Audited rows with the column ``state``: original, retrained, broken or working; the last two as recorded."""
    checked, known = check_results(rows), check_results(recorded)
    studies = [name for name in PARTS if name != PAIRS]
    conditions = pd.concat([gather_conditions(known, name).assign(study=name) for name in studies])
    broken = set(conditions.loc[conditions["is_broken"], ["study", *CONDITION]].itertuples(index=False, name=None))
    places = checked[["study", *CONDITION]].itertuples(index=False, name=None)
    states = pd.Series(["broken" if place in broken else "works" for place in places], index=checked.index)
    states[checked["method"] == "original"] = "original"
    states[checked["study"] == PAIRS] = "retrained"
    return checked.assign(state=states)[checked["verdict"].notna()]


def describe(rows: pd.DataFrame) -> str:
    """Verdicts by study and state, and how the two measures of damage are spread."""
    counts = pd.crosstab([rows["state"], rows["study"]], rows["verdict"], margins=True)
    levels = [0, 0.02, 0.05, 0.5, 0.95, 0.98, 1]
    spread = {
        name: rows.groupby(["study", "state"])[name].describe(percentiles=levels[1:-1]).drop(columns=["mean", "std"])
        for name in ("damage_similarity", "damage_skill")
    }
    is_wrong = ((rows["state"] == "broken") & (rows["verdict"] != "damaged")) | (
        (rows["state"] != "broken") & (rows["verdict"] == "damaged")
    )
    shown = ["study", *CONDITION, "seed", "other_seed", "state", "verdict", "retain_accuracy", *spread]
    parts = [counts.to_string(), *(f"{name}\n{table.round(3).to_string()}" for name, table in spread.items())]
    parts.append(
        f"Broken and not damaged, or damaged and not broken:\n{rows.loc[is_wrong, shown].to_string(index=False)}"
    )
    seen = pd.crosstab([rows["study"], rows["state"]], rows["seen"].replace("", "none").fillna("none"))
    return "\n\n".join([*parts, f"Contrasts that could see\n{seen.to_string()}"])


def main() -> None:
    """Run the parts, then write rows and tables into the folder ``--out``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="none: only the tables, from what is kept")
    parser.add_argument("--datasets", nargs="*", default=(), help="only these")
    parser.add_argument("--seeds", type=int, help="only the first so many")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many, to be resumed")
    parser.add_argument("--language-model", help="of `clinical`: a transformers folder")
    parser.add_argument("--keep", type=Path, required=True, help="folder of results.sqlite and of trained models")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for rows.parquet, results.sqlite and tables.txt"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="few records, one epoch: does it run here? No model is broken then"
    )
    chosen = parser.parse_args()
    studies = choose_parts(chosen.parts, datasets=chosen.datasets, n_seeds=chosen.seeds, is_smoke=chosen.smoke)
    settings = RunSettings(
        out=chosen.keep,
        executor=LocalExecutor(chosen.jobs),
        device=chosen.device,
        models=chosen.keep / "models",
        language_model=chosen.language_model if any(study.name == "clinical" for study in studies) else None,
    )
    if studies:
        run_parts(studies, settings, chosen.seconds)
    rows = load_results(chosen.keep)
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(chosen.out / "rows.parquet", index=False, compression="zstd")
    copy = chosen.out / RESULTS_FILE
    if copy.resolve() != (chosen.keep / RESULTS_FILE).resolve():
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(chosen.keep / RESULTS_FILE)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
    text = describe(mark_broken(rows, pd.read_parquet(RECORDED)))
    (chosen.out / "tables.txt").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    try:
        main()
    except RulerError as error:
        raise SystemExit(str(error)) from error
