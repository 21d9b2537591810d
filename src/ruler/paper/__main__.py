"""`python -m ruler.paper STORE... --out DIR`: tables, figures, comparison and page from finished results.

Several stores give one page, so that studies may run on different machines. With ``--rows FILE.parquet`` all rows are
kept in one file, which can be read again in the place of their stores.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ruler.core.files import write_atomically
from ruler.experiment.store import load_results
from ruler.paper.report import write_all


def main() -> None:
    """Read the stores and write everything that rests on them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path, help="results.sqlite of a run, or a .parquet of rows")
    parser.add_argument("--out", type=Path, default=Path("ruler-results"), help="folder to write into")
    parser.add_argument("--rows", type=Path, help="also keep all rows in this .parquet file")
    chosen = parser.parse_args()
    rows = join_stores(chosen.stores)
    write_all(rows, chosen.out)
    if chosen.rows is not None:
        write_atomically(chosen.rows, rows.to_parquet(index=False, compression="zstd"))


def join_stores(stores: Sequence[Path]) -> pd.DataFrame:
    """The rows of all stores, each study from the last store that holds it."""
    frames = (pd.read_parquet(store) if store.suffix == ".parquet" else load_results(store) for store in stores)
    studies = {study: rows for frame in frames for study, rows in frame.groupby("study")}
    return pd.concat(studies.values(), ignore_index=True)


if __name__ == "__main__":
    main()
