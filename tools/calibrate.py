"""Measures the audit where the truth is known, and writes the tables of docs/statistics.md.

    python tools/calibrate.py --jobs 2                                   # the parts that need no GPU, then the tables
    python tools/calibrate.py --device cuda --parts cifar10 tofu         # the others, on a machine with a GPU
    python tools/calibrate.py --quick --parts random groups              # a tenth, other seeds, nothing written

Rows are kept in build/calibration, one file per part: what is finished is not run again, an interrupted part goes on
where it stopped. The plan is in tools/calibration/plan.py. Needs the data: see RULER_DATA.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

from calibration.plan import CPU_PARTS, FIRST_SEED, GPU_PARTS, QUICK_SEED, list_jobs
from calibration.rows import open_pool, read_rows, run_jobs, run_worlds

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "statistics.md"


def main() -> None:
    """Run what is not there yet, then make the tables of all rows that are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=[*CPU_PARTS, *GPU_PARTS], help="default: those without a GPU")
    parser.add_argument("--jobs", type=int, default=max(1, len(os.sched_getaffinity(0))), help="processes")
    parser.add_argument("--device", default="cpu", help="where the models of cifar10 and tofu are trained")
    parser.add_argument("--cache", type=Path, help="default: build/calibration, with --quick build/calibration-quick")
    parser.add_argument("--quick", action="store_true", help="a tenth with other seeds; tables printed, not written")
    parser.add_argument("--no-page", action="store_true", help="leave docs/statistics.md as it is")
    parser.add_argument("--rows-only", action="store_true", help="run audits, make no tables")
    options = parser.parse_args()
    folder = options.cache or ROOT / "build" / ("calibration-quick" if options.quick else "calibration")
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    parts = CPU_PARTS if options.parts is None else options.parts
    if "tofu" in parts:
        from calibration import language

        models = language.train_models(options.device, is_quick=options.quick)
        print(f"tofu: models made in {time.monotonic() - started:.0f} s", flush=True)
    pool = open_pool(options.jobs)
    try:
        for part in parts:
            begun = time.monotonic()
            if part in CPU_PARTS:
                rows = run_jobs(part, list_jobs(part, is_quick=options.quick), folder / f"{part}.jsonl", pool)
                print(f"{part}: {len(rows)} rows, {time.monotonic() - begun:.0f} s", flush=True)
            elif part == "cifar10":
                from calibration import images

                scale, seed = (images.QUICK, QUICK_SEED) if options.quick else (images.FULL, FIRST_SEED)
                for name, make in images.PARTS.items():
                    path = folder / f"cifar10-{name}.jsonl"
                    rows = run_worlds(name, partial(make, options.device, seed, scale), path, pool)
                    print(f"cifar10-{name}: {len(rows)} rows, {time.monotonic() - begun:.0f} s", flush=True)
            else:
                for name, make in language.PARTS.items():
                    path = folder / f"tofu-{name}.jsonl"
                    rows = run_worlds(name, partial(make, models, is_quick=options.quick), path, pool)
                    print(f"tofu-{name}: {len(rows)} rows, {time.monotonic() - begun:.0f} s", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    if options.rows_only:
        return
    kept = [
        row | {"job": job}
        for path in sorted(folder.glob("*.jsonl"))
        for job, rows in read_rows(path).items()
        for row in rows
    ]
    print(f"{len(kept)} rows, {sum('error' in row for row in kept)} audits failed")
    from calibration.measured import make_tables, write_tables

    tables = make_tables(kept)
    if options.quick or options.no_page:
        print("\n\n".join(f"{name}\n{table}" for name, table in tables.items()))
    else:
        missing = write_tables(PAGE, tables)
        print(f"{len(tables) - len(missing)} tables written to {PAGE.relative_to(ROOT)}")
        if missing:
            print(f"{PAGE.name} has no markers for: {', '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    main()
