"""Studies are chosen by name and made smaller."""

import pytest

from ruler.core.errors import InputError, UnknownNameError
from ruler.experiment.studies import BEYOND_PAPER, STUDIES, choose_studies, narrow_studies, shrink_studies


def test_all_is_every_study_of_the_paper_with_the_primary_first() -> None:
    assert [study.name for study in choose_studies("all")] == [name for name in STUDIES if name not in BEYOND_PAPER]
    assert next(iter(STUDIES)) == "primary"


@pytest.mark.parametrize(
    ("name", "n_fractions", "n_architectures"),
    [("large-tabular", 1, 3), ("images", 1, 2), ("faces", 3, 1), ("clinical", 3, 1)],
)
def test_diagnostic_studies_run_five_seeds_and_all_methods(name: str, n_fractions: int, n_architectures: int) -> None:
    (study,) = choose_studies(name)
    assert (len(study.seeds), len(study.methods), study.engine) == (5, 5, "diagnostic")
    assert (len(study.forget_fractions), len(study.architectures)) == (n_fractions, n_architectures)


def test_the_smallest_form_is_for_diagnostic_studies_alone() -> None:
    assert {study.name for study in shrink_studies(choose_studies("all"))} == {
        "large-tabular",
        "images",
        "faces",
        "clinical",
    }
    with pytest.raises(InputError, match=r"smoke must be used with a diagnostic study: .*; got primary"):
        shrink_studies(choose_studies("primary"))


def test_datasets_keep_the_studies_that_can_run_on_them_and_their_architectures() -> None:
    (left,) = narrow_studies(choose_studies("all"), datasets=["cifar10"])
    assert (left.name, left.datasets, left.architectures) == ("images", ("cifar10",), ("small_cnn", "resnet18"))
    with pytest.raises(InputError, match=r"datasets must name one that the study can run on: .*; got lfw"):
        narrow_studies(choose_studies("primary"), datasets=["lfw"])
    with pytest.raises(UnknownNameError, match="Did you mean 'cifar10'"):
        narrow_studies(choose_studies("all"), datasets=["cifar11"])


def test_unknown_study() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'primary'"):
        choose_studies("primari")


def test_narrowing_replaces_what_is_given_and_keeps_the_rest() -> None:
    (small,) = narrow_studies(
        choose_studies("primary"), datasets=["magic"], n_seeds=2, methods=["scrub"], forget_fractions=[0.2]
    )
    assert (small.datasets, small.seeds, small.methods, small.forget_fractions) == (
        ("magic",),
        (0, 1),
        ("scrub",),
        (0.2,),
    )
    assert narrow_studies(choose_studies("primary")) == choose_studies("primary")


def test_methods_drop_studies_that_run_none_of_them_but_not_the_oracles() -> None:
    left = narrow_studies(choose_studies("all"), methods=["bad_teacher"])
    assert [study.name for study in left if study.engine != "diagnostic"] == ["bad-teacher", "oracle-null"]


def test_one_seed_leaves_the_pairs_out_unless_they_are_all_that_is_asked_for() -> None:
    assert "oracle-null" not in {study.name for study in narrow_studies(choose_studies("all"), n_seeds=1)}
    with pytest.raises(InputError, match="seeds must be at least 2 to compare oracles"):
        narrow_studies(choose_studies("oracle-null"), n_seeds=1)


def test_a_study_without_the_method_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"methods must name one that the study runs: gradient_ascent.*got bad_teacher"
    ):
        narrow_studies(choose_studies("primary"), methods=["bad_teacher"])


def test_unknown_method_and_no_seeds_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="method must be one of"):
        narrow_studies(choose_studies("primary"), methods=["forgetting"])
    with pytest.raises(InputError, match="seeds must be a whole number of at least 1; got 0"):
        narrow_studies(choose_studies("primary"), n_seeds=0)
