"""The bounds of an audit's settings."""

import pytest

from ruler.auditing import AuditSettings
from ruler.core.errors import InputError


@pytest.mark.parametrize("value", [0.5, 0.9])
def test_error_rates_are_bounded_above(value):
    with pytest.raises(InputError, match=f"alpha must be under 0.5; got {value}. The default is 0.05"):
        AuditSettings(alpha=value)


def test_limits_are_bounded_below():
    with pytest.raises(InputError, match="limit must be a finite number above 0; got 0"):
        AuditSettings(limit=0)


def test_too_few_draws_are_refused():
    with pytest.raises(InputError, match="n_permutations must be a whole number of at least 99; got 10"):
        AuditSettings(n_permutations=10)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("align", ("auto", "never", "always")),
        ("scope", ("layers", "outputs")),
        ("control", ("random", "same-rule")),
    ],
)
def test_words_are_of_a_list(name, words):
    for word in words:
        assert getattr(AuditSettings(**{name: word}), name) == word
    with pytest.raises(InputError, match=f"{name} must be one of {', '.join(words)}; got 'yes'"):
        AuditSettings(**{name: "yes"})


@pytest.mark.parametrize(
    ("wrong", "rule"), [({"match_labels": "no"}, "True or False; got 'no'"), ({"limit_chosen_by": 5}, "text; got 5")]
)
def test_truths_and_texts_are_such(wrong, rule):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be {rule}"):
        AuditSettings(**wrong)


@pytest.mark.parametrize("name", ["limit", "confidence", "least_similarity"])
def test_shares_are_under_one(name):
    with pytest.raises(InputError, match=f"{name} must be under 1; got 1"):
        AuditSettings(**{name: 1})


def test_the_limit_is_kept_with_who_chose_it():
    assert AuditSettings().limit_chosen_by is None
    assert AuditSettings(limit=0.05, limit_chosen_by="the privacy board, 2 May").limit_chosen_by.startswith("the")


def test_a_sample_is_not_too_small():
    with pytest.raises(InputError, match="n_reference must be a whole number of at least 100; got 99"):
        AuditSettings(n_reference=99)


def test_the_defaults_are_those_that_the_docs_argue_for():
    assert AuditSettings() == AuditSettings(
        alpha=0.05,
        limit=0.2,
        limit_chosen_by=None,
        confidence=0.95,
        scope="layers",
        control="random",
        n_permutations=2000,
        seed=0,
        align="auto",
        match_labels=False,
        least_similarity=0.7,
        n_plotted=2000,
        n_reference=None,
    )


@pytest.mark.parametrize("name", ["alpha", "limit", "confidence", "least_similarity"])
@pytest.mark.parametrize("value", [0, -0.1, float("nan"), "0.1"])
def test_rates_are_numbers_above_zero(name, value):
    with pytest.raises(InputError, match=f"{name} must be"):
        AuditSettings(**{name: value})


@pytest.mark.parametrize(
    ("name", "least"), [("n_permutations", 99), ("seed", 0), ("n_plotted", 10), ("n_reference", 100)]
)
def test_counts_are_whole_and_large_enough(name, least):
    assert getattr(AuditSettings(**{name: least}), name) == least
    for value in (least - 1, least + 0.5):
        with pytest.raises(InputError, match=f"{name} must be a whole number of at least {least}"):
            AuditSettings(**{name: value})
