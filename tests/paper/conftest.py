"""Full sets of results: the tabular studies drawn at random, the diagnostic ones with the published means."""

import itertools

import numpy as np
import pandas as pd
import pytest

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.agreement import compare_numbers
from ruler.paper.published import load_table
from ruler.paper.results import PAPER_DATASETS, check_results
from ruler.paper.tables import compute_numbers

FRACTIONS = (0.01, 0.05, 0.1)
TWO = ("original", "oracle")
SIX = (*APPROXIMATE_METHODS, *TWO)


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
    offsets = dict(zip(PAPER_DATASETS, rng.normal(size=10), strict=True))
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
    for dataset, method, fraction, seed in itertools.product(PAPER_DATASETS, SIX, FRACTIONS, range(10)):
        yield "primary", dataset, method, fraction, seed, _rate_of(method)


def _bad_teacher():
    for dataset, fraction, seed, teacher in itertools.product(PAPER_DATASETS, FRACTIONS, range(10), (100, 101, 102)):
        yield "bad-teacher", dataset, "bad_teacher", fraction, seed, {"teacher_seed": teacher}


def _oracle_null():
    for dataset, (seed, other) in itertools.product(PAPER_DATASETS, itertools.combinations(range(10), 2)):
        yield "oracle-null", dataset, "oracle", 0.05, seed, {"other_seed": other, "learning_rate": np.nan}


def _minibatch():
    for dataset, method, seed in itertools.product(PAPER_DATASETS, SIX, range(5)):
        yield "minibatch", dataset, method, 0.05, seed, {"batch_size": 128, **_rate_of(method)}


def _rate_of(method):
    return {"learning_rate": np.nan} if method in TWO else {}


def _learning_rate():
    for dataset, method, seed, rate in itertools.product(
        PAPER_DATASETS, APPROXIMATE_METHODS, range(10), (1e-4, 5e-4, 1e-3)
    ):
        yield "learning-rate", dataset, method, 0.05, seed, {"learning_rate": rate}


def _forget_seeds():
    for dataset, method, fraction in itertools.product(PAPER_DATASETS, APPROXIMATE_METHODS, FRACTIONS):
        for seed, forget_seed in itertools.product(range(5), range(999, 1004)):
            yield "forget-seeds", dataset, method, fraction, seed, {"forget_seed": forget_seed}


RANKS = np.array([-1.2, -0.3, 0.0, 0.4, 1.1])
RANKS = (RANKS - RANKS.mean()) / RANKS.std(ddof=1)  # five seeds whose mean is 0 and whose SD is 1
SEVEN = (*APPROXIMATE_METHODS, "bad_teacher", "oracle", "original")
N_FORGET = {"covertype": 4000, "higgs": 2049, "cifar10": 500, "svhn": 500, "cifar100": 500}


def draw_diagnostics():
    """Every cell of the diagnostic studies, with the means and SDs that the paper prints, and 0.5 where it has none."""
    cells = [
        *itertools.product(
            ["large-tabular"],
            ["covertype", "higgs"],
            ["tabular_mlp", "residual_mlp", "ft_transformer"],
            ["random"],
            [0.05],
            SEVEN,
        ),
        *itertools.product(
            ["images"], ["cifar10", "svhn", "cifar100"], ["small_cnn", "resnet18"], ["random"], [0.05], SEVEN
        ),
        *itertools.product(["faces"], ["lfw"], ["resnet18"], ["random"], FRACTIONS, SEVEN),
        *itertools.product(["faces"], ["lfw"], ["resnet18"], ["most_frequent"], [0.1], TWO),
        *itertools.product(["faces"], ["lfw"], ["resnet18"], ["single"], [0.1], TWO),
        *itertools.product(["faces"], ["lfw"], ["resnet18"], ["pair"], [0.1], TWO),
        *itertools.product(["clinical"], ["mtsamples"], ["bert_mlm"], ["random"], FRACTIONS, SEVEN),
        *itertools.product(["clinical"], ["mtsamples_rows"], ["bert_mlm"], ["random"], FRACTIONS, TWO),
    ]
    columns = ["study", "dataset", "architecture", "forget_choice", "forget_fraction", "method"]
    frame = pd.DataFrame([cell for cell in cells for _ in range(5)], columns=columns)
    frame["seed"] = np.tile(np.arange(5), len(cells))
    published = pd.concat([load_table(table) for table in (12, 13, 14, "text")])
    for metric, null, spread in (("m4", 0.5, 0.01), ("m2", 0.0, 0.005)):
        means, sds = (_publish(published, f"{metric}_{end}") for end in ("mean", "sd"))
        keys = list(frame[columns].itertuples(index=False, name=None))
        mean = np.array([means.get(key, null) for key in keys])
        sd = np.array([sds.get(key, spread) for key in keys])
        frame[metric] = mean + sd * np.tile(RANKS, len(cells))
    is_faces = frame.study == "faces"
    return frame.assign(
        learning_rate=np.where(frame.method.isin(TWO), np.nan, np.where(frame.study == "clinical", 5e-5, 5e-4)),
        batch_size=frame.study.map({"large-tabular": 256.0, "images": 128.0, "faces": 128.0, "clinical": 16.0}),
        forget_seed=999,
        teacher_seed=np.where(frame.method == "bad_teacher", 100.0, np.nan),
        other_seed=np.nan,
        n_forget=frame.dataset.map(N_FORGET).fillna(4324 * frame.forget_fraction).round(),
        n_groups=np.where(is_faces, np.ceil(158 * frame.forget_fraction), np.nan),
        m1=0.9,
        m2_mean_baseline=frame.m2,
        m3=0.0,
        mia=0.5,
        forget_accuracy=0.8,
        retain_accuracy=0.85,
        test_accuracy=0.75,
        m4_held_out=0.51 + 0.002 * frame.seed,
        m4_placebo=np.where(is_faces, 0.52, np.nan),
        m4_placebo_sd=np.where(is_faces, 0.1, np.nan),
        m4_placebo_low=np.where(is_faces, 0.3, np.nan),
        m4_placebo_high=np.where(is_faces, 0.8, np.nan),
        m4_placebo_p=np.where(is_faces, 0.1 + 0.1 * frame.seed, np.nan),
        verdict=np.where(frame.method.isin(TWO), None, np.where(frame.seed < 4, "residual", "inconclusive")),
        m2_verdict=np.where(frame.method.isin(TWO), None, "inconclusive"),
        m4_verdict=np.where(frame.method.isin(TWO), None, "residual"),
        m2_p_value=0.2,
        m4_p_value=0.01 * (1 + frame.seed),
        m2_effect=0.5,
        m4_effect=0.56,
        model=np.where(frame.study == "clinical", "small-encoder", None),
        precision="float32",
        note=np.where(frame.dataset == "lfw", "the identities were drawn once", None),
        engine="protocol",
        device="cuda",
        elapsed_s=2.0,
        ruler_version="0.1.0",
        commit="abc1234",
        torch_version="2.4",
        machine="NVIDIA H200, 16 cores",
        finished_at="2026-02-01T00:00:00",
    )


def _publish(published, column):
    part = published[(published.column == column) & (published.other_method == "")]
    choice = ["random"] * len(part)
    keys = zip(part.study, part.dataset, part.architecture, choice, part.forget_fraction, part.method, strict=True)
    # The text rounds what the tables print in full: the first to say a number is the table.
    return dict(reversed(list(zip(keys, part.paper, strict=True))))


@pytest.fixture(scope="session")
def published_diagnostics():
    return draw_diagnostics()


@pytest.fixture
def diagnostics(published_diagnostics):
    return published_diagnostics.copy()


@pytest.fixture(scope="session")
def all_results(full_results, published_diagnostics):
    return pd.concat([full_results, published_diagnostics], ignore_index=True)


@pytest.fixture(scope="session")
def all_comparison(all_results):
    return compare_numbers(compute_numbers(check_results(all_results)))


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
