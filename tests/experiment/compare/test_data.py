from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ruler.core.errors import InputError, UnknownNameError
from ruler.experiment.compare.settings import CompareSettings


@pytest.mark.parametrize(
    ("condition", "column", "value"),
    [("class == yes", "sick", "yes"), ("age == 22", "age", 22), ("ward==west", "ward", "west")],
)
def test_a_condition_forgets_exactly_the_records_that_it_holds_for(patients: Path, condition, column, value) -> None:
    data = CompareSettings(str(patients), target="sick", forget=condition).load()
    table = pd.read_csv(patients)
    partition = data.cut(0.0, 0, "random")
    n_wanted = int((table[column] == value).sum())
    assert data.is_chosen is not None
    assert data.is_chosen.sum() == n_wanted
    assert data.is_chosen[partition.forget].all()
    assert not data.is_chosen[partition.retain].any()
    assert len(partition.forget) + len(partition.retain) == data.n_train == 96
    control = data.find_control()
    n_like = int(data.is_chosen[96:].sum())
    assert len(control) == (n_like if n_like >= 10 else 24)  # all held-out records where too few are alike


def test_whole_groups_are_held_out_and_forgotten_and_name_no_feature(patients: Path) -> None:
    data = CompareSettings(str(patients), target="sick", groups="person").load()
    assert data.inputs.shape == (120, 5)  # a, b, c, age, ward
    partition = data.cut(0.1, 7, "random")
    assert data.groups is not None
    parts = [data.groups[partition.forget], data.groups[partition.retain], data.groups[data.n_train :]]
    assert all(len(part) for part in parts)
    assert len(set().union(*parts)) == sum(len(set(part)) for part in parts) == 40


def test_features_are_scaled_by_the_training_records(patients: Path) -> None:
    data = CompareSettings(str(patients), target="sick").load()
    train = data.inputs[: data.n_train]
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"forget": "class == maybe"}, UnknownNameError, "class must be one of no, yes; got 'maybe'"),
        ({"forget": "agee == 22"}, UnknownNameError, "Did you mean 'age'"),
        ({"forget": "age == old"}, InputError, "which holds numbers"),
        ({"forget": "age == 99"}, InputError, "holds for none"),
        ({"forget": "age"}, InputError, "must be a share such as 0.1"),
        ({"target": None}, InputError, "target must name the column"),
        ({"groups": "persn"}, UnknownNameError, "Did you mean 'person'"),
    ],
)
def test_a_wrong_forget_set_is_named(patients: Path, changes, error, message) -> None:
    with pytest.raises(error, match=message):
        CompareSettings(str(patients), **{"target": "sick"} | changes).load()
