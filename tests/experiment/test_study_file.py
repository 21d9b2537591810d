"""Studies survive the way through TOML, and other content is refused."""

from pathlib import Path

import pytest

from ruler.core.errors import FileFormatError, InputError
from ruler.experiment.studies import STUDIES
from ruler.experiment.study_file import format_studies, parse_studies, read_studies


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
