import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.core.errors import InputError
from ruler.data import TabularData, load_tabular, partition_rows, sample_rows, split

# Pinned when weights retrained on this split equalled the published ones (original models, seed 0).
PUBLISHED = {"adult": 0.829, "breast_cancer": 0.947, "german_credit": 0.770, "phoneme": 0.800}


def _accuracy(state, features, target):
    hidden = features
    for layer in ("net.0", "net.3"):
        hidden = np.maximum(hidden @ state[f"{layer}.weight"].numpy().T + state[f"{layer}.bias"].numpy(), 0)
    logits = hidden @ state["net.6.weight"].numpy().T + state["net.6.bias"].numpy()
    return (logits.argmax(axis=1) == target).mean()


@pytest.mark.parametrize("key", PUBLISHED)
def test_published_weights_know_our_rows(real_data, key):
    torch = pytest.importorskip("torch")
    path = real_data / "checkpoints" / f"{key}_seed0_orig.pt"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    state = torch.load(path, weights_only=True)
    parts = split(load_tabular(key, root=real_data))
    assert _accuracy(state, parts.test_features, parts.test_target) == pytest.approx(PUBLISHED[key], abs=6e-4)
    shuffled = parts.test_features[:, ::-1]
    assert _accuracy(state, shuffled, parts.test_target) < PUBLISHED[key] - 0.02


def test_split_is_stratified_scaled_on_train_and_carries_ids():
    data = load_tabular("breast_cancer")
    parts = split(data)
    assert (parts.train_features.shape, parts.test_features.shape) == ((455, 30), (114, 30))
    assert (parts.train_features.dtype, parts.test_target.dtype) == (np.float32, np.int64)
    assert abs(parts.train_target.mean() - parts.test_target.mean()) < 0.01
    assert sorted([*parts.train_ids, *parts.test_ids]) == list(range(569))
    train, test = data.features[parts.train_ids], data.features[parts.test_ids]
    np.testing.assert_allclose(parts.test_features, (test - train.mean(0)) / train.std(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(parts.train_target, data.target[parts.train_ids])


def test_split_follows_scikit_learn_on_the_arrays_themselves():
    from sklearn.model_selection import train_test_split

    data = load_tabular("breast_cancer")
    expected = train_test_split(data.features, test_size=0.2, stratify=data.target, random_state=999)
    np.testing.assert_array_equal(data.features[split(data).train_ids], expected[0])


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(20, 200), st.floats(0.1, 0.6))
def test_any_split_and_scale_is_that_of_scikit_learn_to_the_bit(seed, n_classes, n, test_fraction):
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    draw = np.random.RandomState(seed)
    target = np.concatenate([np.arange(n_classes), np.arange(n_classes), draw.randint(0, n_classes, n - 2 * n_classes)])
    features = draw.randn(n, 3) * [1.0, 1e-6, 0.0] + [0.0, 1e3, 0.1]
    columns, classes = ("a", "b", "c"), tuple("abcdef"[:n_classes])
    data = TabularData("own", features, target, columns, classes, np.arange(n))
    parts = split(data, test_fraction=test_fraction, seed=seed)
    train, test = train_test_split(np.arange(n), test_size=test_fraction, stratify=target, random_state=seed)
    scaler = StandardScaler().fit(features[train])
    np.testing.assert_array_equal(parts.train_ids, train)
    np.testing.assert_array_equal(parts.test_ids, test)
    np.testing.assert_array_equal(parts.train_features, scaler.transform(features[train]).astype(np.float32))
    np.testing.assert_array_equal(parts.test_features, scaler.transform(features[test]).astype(np.float32))


# Table 9 of the paper: forget-set sizes at 1, 5 and 10 percent.
TABLE_9 = {
    "heart_disease": (10, 12, 24),
    "breast_cancer": (10, 22, 45),
    "german_credit": (10, 40, 80),
    "wine_quality": (12, 63, 127),
    "phoneme": (43, 216, 432),
    "magic": (152, 760, 1521),
    "bank_marketing": (361, 1808, 3616),
    "electricity": (362, 1812, 3624),
    "adult": (390, 1953, 3907),
    "diabetes130": (814, 4070, 8141),
}


@pytest.mark.parametrize("key", TABLE_9)
def test_forget_set_sizes_of_table_9(real_data, key):
    n_train = len(split(load_tabular(key, root=real_data)).train_target)
    assert tuple(len(partition_rows(n_train, ff).forget) for ff in (0.01, 0.05, 0.1)) == TABLE_9[key]


def _small(target):
    n = len(target)
    return TabularData("t", np.arange(n)[:, None] * 1.0, np.array(target), ("a",), ("no", "yes", "so"), np.arange(n))


@pytest.mark.parametrize(
    ("target", "test_fraction", "message"),
    [
        ([0, 1] * 5, 1.5, "test_fraction must be between 0 and 1; got 1.5"),
        ([0, 1, 1, 1, 1], 0.4, "every class must have at least 2 records; got 1 of class 'no'"),
        ([0, 1, 2] * 2, 0.2, "must have room for all 3 classes; got 4 and 2 records"),
    ],
)
def test_data_that_cannot_be_split(target, test_fraction, message):
    with pytest.raises(InputError, match=message):
        split(_small(target), test_fraction=test_fraction)


@given(sizes=st.lists(st.integers(1, 60), min_size=2, max_size=6), share=st.floats(0.05, 0.99), seed=st.integers(0, 5))
def test_sample_keeps_the_shares_of_the_classes(sizes, share, seed):
    data = _small(np.repeat(np.arange(len(sizes)), sizes))
    n = max(len(sizes), int(share * len(data)))
    sample = sample_rows(data, n, seed=seed)
    assert len(sample) == n
    assert (np.diff(sample.ids) > 0).all()  # each record once, in the order of the table
    np.testing.assert_array_equal(sample.features[:, 0], sample.ids)
    np.testing.assert_array_equal(sample.target, data.target[sample.ids])
    counts, fair = np.bincount(sample.target, minlength=len(sizes)), np.array(sizes) * n / len(data)
    assert (counts >= 1).all()
    assert (counts <= np.maximum(np.ceil(fair), 1)).all()
    if (fair >= 1).all():
        assert (counts >= np.floor(fair)).all()


def test_sample_is_repeatable_and_follows_the_seed():
    data = _small([0, 1] * 50)
    assert sample_rows(data, 10).ids.tolist() == sample_rows(data, 10).ids.tolist()
    assert sample_rows(data, 10).ids.tolist() != sample_rows(data, 10, seed=1).ids.tolist()
    assert sample_rows(data, 100) is data


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (101, "n must be at most the 100 records of t; got 101. Keep the whole table"),
        (1, "n must be a whole number of at least 2; got 1"),
        (10.5, "n must be a whole number of at least 2; got 10.5"),
    ],
)
def test_sample_of_an_impossible_size(n, message):
    with pytest.raises(InputError, match=message):
        sample_rows(_small([0, 1] * 50), n)
