"""Settings of studies keep their rules."""

import pytest

from ruler.core.errors import InputError, UnknownNameError
from ruler.experiment.settings import StudySettings


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
