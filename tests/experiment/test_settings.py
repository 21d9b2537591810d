"""Settings of studies keep their rules, and survive the way through TOML."""

from pathlib import Path

import pytest

from ruler.core.errors import FileFormatError, InputError, UnknownNameError
from ruler.experiment.settings import StudySettings, format_studies, parse_studies, read_studies
from ruler.experiment.studies import STUDIES


def make(**changes: object) -> StudySettings:
    return StudySettings(**({"name": "own", "methods": ("scrub",)} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": ()}, "datasets must hold at least one value and none twice"),
        ({"seeds": (1, 1)}, "seeds must hold at least one value and none twice"),
        ({"seeds": (-1,)}, "seeds must be a whole number of at least 0"),
        ({"forget_fractions": (1.0,)}, "forget_fractions must be below 1; got 1.0"),
        ({"forget_fractions": (0.0,)}, "forget_fractions must be a finite number above 0"),
        ({"learning_rates": (-1.0,)}, "learning_rates must be a finite number above 0"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"engine": "ensemble", "batch_size": 8}, "engine must be 'protocol' for mini batches and for imported"),
        ({"engine": "ensemble", "models": "imported"}, "engine must be 'protocol' for mini batches and for imported"),
        ({"compares_oracles": True, "seeds": (0,)}, "seeds must be at least 2 to compare oracles; got 1 in 'own'"),
        ({"models": "imported", "batch_size": 8}, "models must be 'trained' for mini batches"),
    ],
)
def test_rules(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": ("adlut",)}, "Did you mean 'adult'"),
        ({"methods": ("scrab",)}, "Did you mean 'scrub'"),
        ({"engine": "ensembel"}, "Did you mean 'ensemble'"),
        ({"models": "import"}, "Did you mean 'imported'"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        make(**changes)


def test_every_study_comes_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(format_studies(tuple(STUDIES.values())))
    assert read_studies(path) == tuple(STUDIES.values())


def test_what_a_person_leaves_out_takes_the_default() -> None:
    (study,) = parse_studies('[[study]]\nname = "own"\nmethods = ["scrub"]\nlearning_rates = [1e-5]\n')
    assert study.learning_rates == (1e-5,)
    assert len(study.datasets) == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "study.toml must be TOML"),
        ('[other]\nname = "own"\n', r"must hold \[\[study\]\] tables and nothing else; got \['other'\]"),
        ("", r"must hold \[\[study\]\] tables and nothing else; got none"),
        ('[[study]]\nname = "own"\ncolour = 3\n', "must hold valid settings; got colour"),
        ('[[study]]\nname = "own"\nseeds = ["one"]\n', "must hold valid settings; got seeds.0"),
        ('[[study]]\nmethods = ["scrub"]\n', "must name each study"),
    ],
)
def test_other_content_is_refused(text: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        parse_studies(text)


def test_rules_hold_for_files_too() -> None:
    with pytest.raises(InputError, match="forget_fractions must be below 1"):
        parse_studies('[[study]]\nname = "own"\nforget_fractions = [5.0]\n')
