"""M2 of the mini-batch study against oracles of the same seed and of the other seeds: the cause of Table 6's signs.

    python tools/unpaired_oracles.py docs/table_6_oracles.csv [--datasets KEY ...]

Trains originals and oracles on all ten sets as the study `minibatch` does (five seeds, forget fraction 5%, batch size
128), unlearns with the four methods, and writes one row per dataset, method and seed: M2 against the oracle of the
same seed, and the mean of M2 against those of the other four. Takes half an hour of one core.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import ruler
from ruler.core.types import FloatArray
from ruler.data import list_datasets, load_tabular, partition_rows, split
from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.training.classifier import train_tabular
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS

SEEDS, FRACTION, FORGET_SEED, BATCH_SIZE = range(5), 0.05, 999, 128
BASELINE_ROWS, BASELINE_SEED = 500, 42


def measure(dataset: str) -> list[dict[str, Any]]:
    """One row per method and seed of a dataset."""
    parts = split(load_tabular(dataset))
    rows, classes = parts.train_features, parts.train_target
    partition = partition_rows(len(classes), FRACTION, seed=FORGET_SEED)
    n_retain = len(partition.retain)
    drawn = np.random.RandomState(BASELINE_SEED).choice(n_retain, min(BASELINE_ROWS, n_retain), replace=False)
    baseline = partition.retain[drawn]

    def read(model: Any) -> tuple[FloatArray, FloatArray]:
        with torch.inference_mode():
            found = (model.eval().penultimate(torch.as_tensor(rows[part])) for part in (partition.forget, baseline))
            return tuple(part.double().numpy() for part in found)

    settings = TrainingSettings(batch_size=BATCH_SIZE)
    oracles = {seed: read(train_tabular(rows, classes, partition, seed=seed, settings=settings)) for seed in SEEDS}
    found = []
    for seed in SEEDS:
        original = train_tabular(rows, classes, seed=seed, settings=settings)
        for method in APPROXIMATE_METHODS:
            unlearned = ruler.unlearn(
                method,
                original,
                forget=(rows[partition.forget], classes[partition.forget]),
                retain=(rows[partition.retain], classes[partition.retain]),
                settings=METHODS[method].settings(batch_size=BATCH_SIZE),
            )
            forget, retain = read(unlearned)
            gaps = {other: ruler.m2(forget, oracle[0], retain, oracle[1]) for other, oracle in oracles.items()}
            own = gaps.pop(seed)
            place = {"dataset": dataset, "method": method, "seed": seed}
            found.append({**place, "m2_same_seed": own, "m2_other_seeds": float(np.mean(list(gaps.values())))})
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("--datasets", nargs="+", default=list_datasets("primary"), help="some of the ten sets")
    chosen = parser.parse_args()
    table = pd.DataFrame([row for dataset in chosen.datasets for row in measure(dataset)])
    table = table.sort_values(["dataset", "method", "seed"])
    table.to_csv(chosen.out, index=False, float_format="%.10g", lineterminator="\n")
    print(table.groupby("method")[["m2_same_seed", "m2_other_seeds"]].mean().round(5))


if __name__ == "__main__":
    main()
