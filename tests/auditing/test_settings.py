"""The bounds of an audit's settings."""

import pytest

from ruler.auditing import AuditSettings
from ruler.core.errors import InputError


@pytest.mark.parametrize("name", ["alpha", "margin"])
@pytest.mark.parametrize("value", [0.5, 0.9])
def test_rates_are_bounded_above(name, value):
    with pytest.raises(InputError, match=f"{name} must be under 0.5; got {value}. The default is"):
        AuditSettings(**{name: value})


def test_rates_are_bounded_below():
    with pytest.raises(InputError, match="margin must be a finite number above 0; got 0"):
        AuditSettings(margin=0)


def test_too_few_draws_are_refused():
    with pytest.raises(InputError, match="n_permutations must be a whole number of at least 99; got 10"):
        AuditSettings(n_permutations=10)


def test_alignment_is_one_of_three():
    with pytest.raises(InputError, match="align must be one of auto, never, always; got 'yes'"):
        AuditSettings(align="yes")


@pytest.mark.parametrize(
    ("wrong", "rule"), [({"match_labels": "no"}, "True or False; got 'no'"), ({"margin_chosen_by": 5}, "text; got 5")]
)
def test_truths_and_texts_are_such(wrong, rule):
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be {rule}"):
        AuditSettings(**wrong)


@pytest.mark.parametrize("name", ["share_limit", "least_similarity", "power"])
def test_shares_are_under_one(name):
    with pytest.raises(InputError, match=f"{name} must be under 1; got 1"):
        AuditSettings(**{name: 1})


def test_the_margin_is_kept_with_who_chose_it():
    assert AuditSettings().margin_chosen_by is None
    assert AuditSettings(margin=0.05, margin_chosen_by="the privacy board, 2 May").margin_chosen_by.startswith("the")


def test_a_sample_is_not_too_small():
    with pytest.raises(InputError, match="n_reference must be a whole number of at least 100; got 99"):
        AuditSettings(n_reference=99)


def test_the_defaults_are_those_that_the_docs_argue_for():
    assert AuditSettings() == AuditSettings(
        alpha=0.05,
        margin=0.1,
        margin_chosen_by=None,
        share_limit=0.5,
        power=0.8,
        n_permutations=2000,
        seed=0,
        align="auto",
        match_labels=False,
        least_similarity=0.7,
        n_plotted=2000,
        n_reference=None,
    )


@pytest.mark.parametrize("name", ["alpha", "margin", "power", "share_limit", "least_similarity"])
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
