"""How long do the models of the primary study take, all at once and one by one?

Run ``python -m benchmarks ensemble --device cuda``. The features are random numbers in the sizes of the ten
datasets: the time does not depend on their values.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import torch

from ruler.training.classifier import train_tabular
from ruler.training.ensemble import EnsembleMember, train_ensemble
from ruler.training.settings import TrainingSettings

SIZES = {
    "heart_disease": (242, 13),
    "breast_cancer": (455, 30),
    "german_credit": (800, 20),
    "wine_quality": (1279, 11),
    "phoneme": (4323, 5),
    "magic": (15216, 10),
    "bank_marketing": (36168, 16),
    "electricity": (36249, 8),
    "adult": (39073, 14),
    "diabetes130": (81412, 49),
}
"""Training rows and features of each dataset."""

FRACTIONS = (0.01, 0.05, 0.10)


def make_members(n_rows: int, n_seeds: int) -> list[EnsembleMember]:
    """For each seed an original and one oracle per forget fraction."""
    sets = [np.arange(max(10, int(fraction * n_rows))) for fraction in FRACTIONS]
    return [EnsembleMember(seed, forget) for seed in range(n_seeds) for forget in (None, *sets)]


def measure_s(work: Callable[[], object]) -> float:
    """Seconds that ``work`` takes, with everything that it started on a GPU."""
    started_s = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started_s


def compare(
    features: npt.NDArray[np.float32], arguments: argparse.Namespace, settings: TrainingSettings
) -> tuple[float, float]:
    """Seconds for all members of one dataset: together, and one by one (extrapolated from a few).

    The two take turns, so that both see the same machine.
    """
    labels = (features[:, 0] > 0).astype(np.int64)
    members = make_members(len(features), arguments.seeds)
    n_parts = max(1, arguments.one_by_one)
    together_s, alone_s = 0.0, 0.0
    for part in range(n_parts):
        some = members[part * len(members) // n_parts : (part + 1) * len(members) // n_parts]
        together_s += measure_s(partial(train_ensemble, features, labels, some, settings, device=arguments.device))
        if arguments.one_by_one:
            alone_s += measure_s(partial(train_tabular, features, labels, seed=part, settings=settings))
    return together_s, alone_s / n_parts * len(members)


def main() -> None:
    """Print one line per dataset, then the total."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ensemble", description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--datasets", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--one-by-one", type=int, default=0, help="models per dataset to train one by one")
    arguments = parser.parse_args()
    settings = TrainingSettings(epochs=arguments.epochs)
    compare(np.ones((64, 2), dtype=np.float32), arguments, settings)  # the first call starts the device
    total = np.zeros(2)
    for name in arguments.datasets:
        features = np.random.RandomState(0).randn(*SIZES[name]).astype(np.float32)
        times_s = np.array(compare(features, arguments, settings))
        total += times_s
        print(_describe(name, times_s), flush=True)
    print(_describe(f"all, {4 * arguments.seeds} models per dataset", total))


def _describe(name: str, times_s: npt.NDArray[np.float64]) -> str:
    together_s, alone_s = times_s
    ratio = f", one by one {alone_s:9.2f} s, ratio {alone_s / together_s:5.2f}" if alone_s > 0 else ""
    return f"{name:36s} together {together_s:9.2f} s{ratio}"
