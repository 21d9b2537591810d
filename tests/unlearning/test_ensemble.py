"""Stacked unlearning: independence of the other members, and scores distributed as those of ruler.unlearn."""

import os

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp, levene, mannwhitneyu

from ruler.core.errors import InputError, UnknownNameError
from ruler.core.types import Partition
from ruler.data import load_tabular, partition_rows, split
from ruler.metrics import m2, m4
from ruler.training.classifier import train_tabular
from ruler.training.ensemble import EnsembleMember, MLPShape, StackedMLP, train_ensemble
from ruler.unlearning import FineTuningSettings, ScrubSettings, unlearn
from ruler.unlearning.ensemble import unlearn_ensemble


@pytest.fixture(scope="module")
def table():
    draw = np.random.RandomState(0)
    features = draw.randn(120, 5).astype(np.float32)
    return features, (features[:, 0] + 0.5 * draw.randn(120) > 0).astype(np.int64)


FORGET = [np.array([3, 4, 50, 119]), np.arange(10, 20)]


def test_company_and_order_change_no_bit(table):
    originals = train_ensemble(*table, [EnsembleMember(0), EnsembleMember(1)])
    repeated, forget = originals.select([0, 1, 0, 1]), [FORGET[0], FORGET[0], FORGET[1], FORGET[1]]
    data = {"features": table[0], "labels": table[1]}
    together = unlearn_ensemble("scrub", repeated, forget=forget, **data)
    backwards = unlearn_ensemble("scrub", repeated.select([3, 2, 1, 0]), forget=forget[::-1], **data)
    for i in range(4):
        alone = unlearn_ensemble("scrub", repeated.select([i]), forget=[forget[i]], **data)
        assert torch.equal(together.flat[i], alone.flat[0])
        assert torch.equal(together.flat[i], backwards.flat[3 - i])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"method": "scrubb"}, UnknownNameError, "Did you mean 'scrub'"),
        ({"settings": FineTuningSettings()}, InputError, "settings must be ScrubSettings for SCRUB; got FineTun"),
        ({"settings": ScrubSettings(batch_size=8)}, InputError, "batch_size must be None for an ensemble; got 8"),
        ({"forget": FORGET[:1]}, InputError, "forget must hold one array of rows per member, 2; got 1"),
        ({"forget": [FORGET[0], np.array([], int)]}, InputError, r"forget\[1\] must name at least one row"),
        ({"forget": [FORGET[0], np.array([120])]}, InputError, "forget must name rows from 0 to 119"),
        ({"features": np.zeros((120, 4), np.float32)}, InputError, "features must have 5 columns"),
    ],
)
def test_bad_arguments_are_named(table, changes, error, message):
    originals = StackedMLP.from_seeds([0, 1], MLPShape(5))
    given = {"method": "scrub", "features": table[0], "labels": table[1], "forget": FORGET} | changes
    with pytest.raises(error, match=message):
        unlearn_ensemble(given.pop("method"), originals, **given)


def measure_ensemble(data, forget, retain, seeds, method):
    rows, labels = data.train_features, data.train_target
    originals = train_ensemble(rows, labels, [EnsembleMember(seed) for seed in seeds])
    oracles = train_ensemble(rows, labels, [EnsembleMember(seed, forget) for seed in seeds])
    sets = [forget] * len(seeds)
    unlearned = unlearn_ensemble(method, originals, features=rows, labels=labels, forget=sets)
    for i in range(len(seeds)):
        yield [model.embed(rows[part], i) for part in (forget, retain) for model in (unlearned, oracles)]


def measure_one_by_one(data, forget, retain, seeds, method):
    rows, labels = data.train_features, data.train_target
    parts = {"forget": (rows[forget], labels[forget]), "retain": (rows[retain], labels[retain])}
    for seed in seeds:
        original = train_tabular(rows, labels, seed=seed)
        oracle = train_tabular(rows, labels, Partition(forget, retain), seed=seed)
        unlearned = unlearn(method, original, **parts).eval()
        with torch.no_grad():
            yield [
                model.penultimate(torch.tensor(rows[part])).numpy()
                for part in (forget, retain)
                for model in (unlearned, oracle)
            ]


def score(embeddings):
    """M2 and M4 of each seed, (seeds, 2)."""
    return np.array(
        [
            (m2(forget, oracle_forget, retain, oracle_retain), m4(forget, retain))
            for forget, oracle_forget, retain, oracle_retain in embeddings
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fine_tuning", "neggrad_plus"])
@pytest.mark.parametrize("dataset", ["breast_cancer", "wine_quality"])
def test_scores_are_distributed_as_one_by_one(dataset, method):
    if dataset != "breast_cancer" and "RULER_DATA" not in os.environ:
        pytest.skip("needs RULER_DATA with tabular/wine_quality.csv.gz")
    data = split(load_tabular(dataset))
    partition = partition_rows(len(data.train_features), 0.05)
    setting = (data, partition.forget, partition.retain, range(20), method)
    alone, together = score(measure_one_by_one(*setting)), score(measure_ensemble(*setting))
    for name, a, b in zip(("M2", "M4"), alone.T, together.T, strict=True):
        p_values = {"KS": ks_2samp(a, b).pvalue, "MWU": mannwhitneyu(a, b).pvalue, "Levene": levene(a, b).pvalue}
        print(f"{dataset} {method} {name}: {a.mean():.5f} +- {a.std():.5f} one by one,", end=" ")
        print(f"{b.mean():.5f} +- {b.std():.5f} together,", {k: round(float(p), 3) for k, p in p_values.items()})
        assert min(p_values.values()) > 0.01
