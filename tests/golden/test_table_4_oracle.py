"""Table 4, oracle column: membership accuracy of retrained models, ten seeds, on the five small datasets."""

import os

import numpy as np
import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("RULER_DATA" not in os.environ, reason="RULER_DATA names no folder with the tables"),
]

FRACTIONS = (0.01, 0.05, 0.10)
PUBLISHED = {
    "breast_cancer": (0.560, 0.568, 0.516),
    "heart_disease": (0.520, 0.450, 0.417),
    "german_credit": (0.700, 0.537, 0.473),
    "wine_quality": (0.500, 0.479, 0.458),
    "phoneme": (0.486, 0.509, 0.518),
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_oracle_membership_is_near_the_paper(key: str) -> None:
    from ruler.data import load_tabular, partition_rows, split
    from ruler.metrics.outputs import membership_inference
    from ruler.training.classifier import predict, train_tabular

    parts = split(load_tabular(key))
    features, target = parts.train_features, parts.train_target
    ours = []
    for fraction in FRACTIONS:
        partition = partition_rows(len(target), fraction)
        forget = (features[partition.forget], target[partition.forget])
        values = []
        for seed in range(10):
            oracle = train_tabular(features, target, partition, seed=seed)
            test = predict(oracle, (parts.test_features, parts.test_target))
            values.append(membership_inference(predict(oracle, forget), test))
        ours.append(np.mean(values))
    print(f"\n{key:14s} paper {PUBLISHED[key]}  ours {np.round(ours, 4).tolist()}")
    np.testing.assert_allclose(ours, PUBLISHED[key], atol=0.02)
