"""A full set of results, drawn at random: every study of the tabular part at the paper's size."""

import itertools

import numpy as np
import pandas as pd
import pytest

from ruler.paper.comparison import compare_numbers
from ruler.paper.names import APPROXIMATE_METHODS, DATASETS
from ruler.paper.published import load_table
from ruler.paper.results import check_results
from ruler.paper.tables import compute_numbers

FRACTIONS = (0.01, 0.05, 0.1)


def draw_results(seed=0):
    rng = np.random.default_rng(seed)
    cells = [*_primary(), *_bad_teacher(), *_oracle_null(), *_minibatch(), *_learning_rate(), *_forget_seeds()]
    columns = ["study", "dataset", "method", "forget_fraction", "seed"]
    frame = pd.DataFrame([cell[:5] for cell in cells], columns=columns)
    settings = [cell[5] for cell in cells]
    for name, default in {
        "learning_rate": 5e-4,
        "batch_size": np.nan,
        "forget_seed": 999,
        "teacher_seed": np.nan,
        "other_seed": np.nan,
    }.items():
        frame[name] = [setting.get(name, default) for setting in settings]
    sizes = load_table(9).query("column == 'n_forget'").set_index(["dataset", "forget_fraction"]).paper
    frame["n_forget"] = [sizes[key] for key in zip(frame.dataset, frame.forget_fraction, strict=True)]
    offsets = dict(zip(DATASETS, rng.normal(size=10), strict=True))
    base = frame.dataset.map(offsets).to_numpy()

    def draw(mean, between, within):
        return mean + between * base + within * rng.normal(size=len(frame))

    frame["m1"] = draw(0.99, 0.002, 0.001)
    frame["m2"] = draw(-0.002, 0.001, 0.001)
    frame["m2_mean_baseline"] = frame.m2 + 0.0015
    frame["m3"] = draw(-0.001, 0.0005, 0.0005)
    frame["m4"] = draw(0.52, 0.03, 0.01)
    frame["mia"] = draw(0.50, 0.03, 0.02)
    for name, mean in {"forget": 0.85, "retain": 0.84, "test": 0.83}.items():
        frame[f"{name}_accuracy"] = draw(mean, 0.06, 0.01)
    frame.loc[frame.method == "original", "m3"] = np.nan
    return frame.assign(
        engine="protocol",
        device="cpu",
        elapsed_s=0.25,
        ruler_version="0.1.0",
        commit="abc1234",
        torch_version="2.4",
        machine="x86_64, 2 cores",
        finished_at="2026-01-01T00:00:00",
    )


def _primary():
    methods = (*APPROXIMATE_METHODS, "oracle", "original")
    for dataset, method, fraction, seed in itertools.product(DATASETS, methods, FRACTIONS, range(10)):
        yield "primary", dataset, method, fraction, seed, {}


def _bad_teacher():
    for dataset, fraction, seed, teacher in itertools.product(DATASETS, FRACTIONS, range(10), (100, 101, 102)):
        yield "bad-teacher", dataset, "bad_teacher", fraction, seed, {"teacher_seed": teacher}


def _oracle_null():
    for dataset, (seed, other) in itertools.product(DATASETS, itertools.combinations(range(10), 2)):
        yield "oracle-null", dataset, "oracle", 0.05, seed, {"other_seed": other}


def _minibatch():
    for dataset, method, seed in itertools.product(DATASETS, APPROXIMATE_METHODS, range(5)):
        yield "minibatch", dataset, method, 0.05, seed, {"batch_size": 128}


def _learning_rate():
    for dataset, method, seed, rate in itertools.product(DATASETS, APPROXIMATE_METHODS, range(10), (1e-4, 5e-4, 1e-3)):
        yield "learning-rate", dataset, method, 0.05, seed, {"learning_rate": rate}


def _forget_seeds():
    for dataset, method, fraction in itertools.product(DATASETS, APPROXIMATE_METHODS, FRACTIONS):
        for seed, forget_seed in itertools.product(range(5), range(999, 1004)):
            yield "forget-seeds", dataset, method, fraction, seed, {"forget_seed": forget_seed}


@pytest.fixture(scope="session")
def full_results():
    return draw_results()


@pytest.fixture(scope="session")
def full_numbers(full_results):
    return compute_numbers(check_results(full_results))


@pytest.fixture(scope="session")
def full_comparison(full_numbers):
    return compare_numbers(full_numbers)


@pytest.fixture
def results(full_results):
    return full_results.copy()
