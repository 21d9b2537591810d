"""M1-M4 against the definition in plain NumPy, in exact fractions, and against every error of the contract."""

from fractions import Fraction

import numpy as np
import pytest

import ruler
from ruler.core.arithmetic import norm_rows
from ruler.core.checks import cached_rows_for
from ruler.metrics import calibration_gap, oracle_similarity, percentile_rank, representation_shift
from ruler.metrics.paper import compare_rows

MODELS = ("unlearned", "original", "oracle")


@pytest.fixture
def rows(random):
    """Embeddings of forget and retain records in three models."""
    return {
        f"{model}_{side}": random.normal(size=(n, 6)) for model in MODELS for side, n in (("forget", 7), ("retain", 40))
    }


def cosine(a, b):
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def plain_m4(forget, retain):
    f, r = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (forget, retain))
    nearest_forget = (f @ r.T).max(1)
    among = r @ r.T
    np.fill_diagonal(among, -np.inf)
    return np.mean([(among.max(1) <= s).mean() for s in nearest_forget])


def test_m1_is_equation_2(rows):
    expected = cosine(rows["unlearned_forget"], rows["oracle_forget"])
    np.testing.assert_allclose(oracle_similarity(rows["unlearned_forget"], rows["oracle_forget"]), expected, atol=1e-14)
    assert ruler.m1(rows["unlearned_forget"], rows["oracle_forget"]) == pytest.approx(expected.mean(), abs=1e-14)


def test_m2_is_equation_3(rows):
    forget = cosine(rows["unlearned_forget"], rows["oracle_forget"])
    retain = cosine(rows["unlearned_retain"], rows["oracle_retain"])
    given = [rows[name] for name in ("unlearned_forget", "oracle_forget", "unlearned_retain", "oracle_retain")]
    np.testing.assert_allclose(calibration_gap(*given), forget - np.median(retain), atol=1e-14)
    assert ruler.m2(*given) == pytest.approx(forget.mean() - np.median(retain), abs=1e-14)


def test_m3_is_equation_4(rows):
    after = cosine(rows["unlearned_forget"], rows["oracle_forget"])
    before = cosine(rows["original_forget"], rows["oracle_forget"])
    given = [rows[name] for name in ("unlearned_forget", "original_forget", "oracle_forget")]
    np.testing.assert_allclose(representation_shift(*given), after - before, atol=1e-14)
    assert ruler.m3(*given) == pytest.approx((after - before).mean(), abs=1e-14)


def test_m4_is_equations_5_to_7(random):
    for _ in range(20):
        forget, retain = random.normal(size=(9, 5)), random.normal(size=(60, 5))
        assert ruler.m4(forget, retain) == plain_m4(forget, retain)
        assert percentile_rank(forget, retain).mean() == ruler.m4(forget, retain)


def exact_m4(forget, retain):
    """Eq. 5-7 over integer vectors in exact arithmetic: cosines compared by sign and square."""

    def key(a, b):  # monotone in the cosine, and rational
        dot = int(np.dot(a, b))
        size = int(np.dot(a, a)) * int(np.dot(b, b))
        return Fraction(0) if size == 0 else Fraction(dot * abs(dot), size)

    s_f = [max(key(x, r) for r in retain) for x in forget]
    s_r = [max(key(x, r) for j, r in enumerate(retain) if j != i) for i, x in enumerate(retain)]
    return float(sum(Fraction(sum(r <= f for r in s_r), len(s_r)) for f in s_f) / len(s_f))


@pytest.mark.parametrize("seed", range(25))
def test_m4_is_exact_where_ties_abound(seed):
    random = np.random.default_rng(seed)
    forget = random.integers(-2, 3, size=(random.integers(1, 12), 3))
    retain = random.integers(-2, 3, size=(random.integers(2, 40), 3))
    assert ruler.m4(forget, retain) == pytest.approx(exact_m4(forget, retain), abs=1e-15)


def test_duplicated_rows_keep_their_ties(random):
    retain = np.repeat(random.normal(size=(40, 128)), 5, axis=0).astype(np.float32)
    assert ruler.m4(retain[::5], retain) == 1.0
    lonely = random.normal(size=(3, 128)).astype(np.float32)
    assert ruler.m4(lonely, retain) == 0.0


def test_all_metrics_together(rows):
    given = {name: rows[name] for name in ("unlearned_forget", "unlearned_retain", "oracle_forget", "oracle_retain")}
    without = ruler.all_metrics(**given)
    assert list(without) == ["m1", "m2", "m3", "m4"]
    assert without["m3"] is None
    complete = ruler.all_metrics(**given, original_forget=rows["original_forget"])
    assert complete["m3"] == ruler.m3(rows["unlearned_forget"], rows["original_forget"], rows["oracle_forget"])
    assert complete["m4"] == ruler.m4(rows["unlearned_forget"], rows["unlearned_retain"])
    assert all(type(value) is float for value in complete.values())


def test_cosine_similarity_is_clipped_and_exact_for_twins(random):
    a = random.normal(size=(200, 3)).astype(np.float32)
    assert (ruler.cosine_similarity(a, a) == 1.0).all()
    opposite = ruler.cosine_similarity(a, -a)
    assert opposite.min() == -1.0
    assert opposite.max() <= -1.0 + 1e-15
    assert ruler.cosine_similarity(a, np.zeros_like(a)).tolist() == [0.0] * 200


def test_embeddings_and_tensors_go_in(rows):
    torch = pytest.importorskip("torch")
    expected = ruler.m1(rows["unlearned_forget"], rows["oracle_forget"])
    tensors = [torch.tensor(rows[name]) for name in ("unlearned_forget", "oracle_forget")]
    assert ruler.m1(*tensors) == expected
    assert ruler.m1(*(ruler.Embeddings(t.numpy()) for t in tensors)) == expected


X = np.arange(1.0, 13.0).reshape(4, 3)
NAN = np.where(X == 5, np.nan, X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ruler.m1(X[0], X), "unlearned_forget must be 2-D"),
        (
            lambda: ruler.m1(X, X[:3]),
            r"unlearned_forget and oracle_forget must have the same shape.*\(4, 3\) and \(3, 3\)",
        ),
        (lambda: ruler.m1(X, NAN), "oracle_forget must be finite; got NaN or inf in 1 rows"),
        (lambda: ruler.m1(X * 1e300, X), "unlearned_forget must have norms.*overflow in 4 rows"),
        (lambda: ruler.m1(X[:0], X[:0]), "unlearned_forget must not be empty"),
        (lambda: ruler.m2(X, X, X, NAN), "oracle_retain must be finite"),
        (lambda: ruler.m2(X, X, X[None], X), "unlearned_retain must be 2-D"),
        (lambda: ruler.m3(X, NAN, X), "original_forget must be finite"),
        (lambda: ruler.m4(NAN, X), "forget must be finite"),
        (lambda: ruler.m4(X, NAN), "retain must be finite"),
        (lambda: ruler.m4(X, X[:1]), "retain must have at least 2 rows"),
        (lambda: ruler.m4(X, X[:0]), "retain must not be empty"),
        (lambda: ruler.m4(X, X[:, :2]), "forget and retain must have the same number of columns; got 3 and 2"),
        (lambda: ruler.m4(X[None], X), "forget must be 2-D"),
        (lambda: ruler.cosine_similarity(X, NAN), "b must be finite"),
        (lambda: ruler.m1([["a"]], [["b"]]), "unlearned_forget must hold real numbers"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("n_threads", ["1", "3"])
def test_blocks_threads_and_known_norms_change_no_similarity(n_threads, random, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
    n = 2 * cached_rows_for(5) + 3
    left, right = random.normal(size=(2, n, 5))
    left[::1000] = 0
    norms = norm_rows(left), norm_rows(right)
    found = compare_rows(left, right, ("left", "right"))
    np.testing.assert_array_equal(compare_rows(left, right, ("left", "right"), norms), found)
    some = random.integers(0, n, 40)
    np.testing.assert_array_equal(compare_rows(left[some], right[some], ("left", "right")), found[some])
