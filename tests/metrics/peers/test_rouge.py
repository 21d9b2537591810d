import numpy as np
import pytest
from tests.metrics.peers.readings import read_log

from ruler.core.errors import InputError
from ruler.metrics.peers.rouge import rouge_l


@pytest.mark.parametrize(
    ("true", "own", "expected"),
    [
        ("a b c d", "a b c d", 1.0),
        ("a b c d", "d c b a", 0.25),
        ("a b c d", "x a x c x", 0.5),
        ("A, b!", "a B c d e", 1.0),
        ("a b", "", 0.0),
    ],
)
def test_by_hand(true, own, expected):
    assert rouge_l([true], [own]).value == expected


def test_answers_without_words_have_no_value():
    assert np.isnan(rouge_l(["?!", "a"], ["a", "a"]).records).tolist() == [True, False]
    assert rouge_l(["?!"], ["a"]).reason == "No true answer has a word."
    with pytest.raises(InputError, match="one per answer, 1; got 2"):
        rouge_l(["a"], ["a", "b"])


@pytest.mark.parametrize("model", ["full", "retain90"])
def test_published_logs(model):
    """Public code cuts word endings, so ours is at most as high, and the same for most records."""
    for part in read_log(model).values():
        _, own, true = zip(*part["generated_text"], strict=True)
        found, published = rouge_l(true, own).records, np.array(part["rougeL_recall"])
        assert (found <= published + 1e-12).all()
        assert 0 <= published.mean() - found.mean() < 0.01
        assert np.isclose(found, published).mean() > 0.8
