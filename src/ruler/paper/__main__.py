"""`python -m ruler.paper STORE... --out DIR`: tables, figures, comparison and page from finished results.

Several stores are read together, so that studies that ran on different machines share one page. A study that several
stores hold is taken from the last of them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ruler.experiment.store import load_results
from ruler.paper.report import write_all


def main() -> None:
    """Read the stores and write everything that rests on them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path, help="results.sqlite of a run")
    parser.add_argument("--out", type=Path, default=Path("ruler-results"), help="folder to write into")
    chosen = parser.parse_args()
    write_all(join_stores(chosen.stores), chosen.out)


def join_stores(stores: Sequence[Path]) -> pd.DataFrame:
    """The rows of all stores, each study from the last store that holds it."""
    studies = {study: rows for store in stores for study, rows in load_results(store).groupby("study")}
    return pd.concat(studies.values(), ignore_index=True)


if __name__ == "__main__":
    main()
