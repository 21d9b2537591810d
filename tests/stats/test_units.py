import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.stats.units import find_units


def test_a_label_on_both_sides_names_two_units():
    units = find_units(3, 3, ["a", "a", "b"], ["b", "c", "c"])
    assert (units.n_first, units.n_second, units.is_grouped) == (2, 2, True)
    assert units.codes.tolist() == [0, 0, 1, 2, 3, 3]


def test_groups_must_label_every_record():
    with pytest.raises(InputError, match=r"groups must be one label a record, shape \(3,\); got shape \(2,\)"):
        find_units(3, 2, ["a", "b"])


def test_bootstrap_draws_groups_whole():
    units = find_units(6, 4, ["a", "a", "a", "b", "b", "b"])
    first, second = units.draw_weights(50, np.random.default_rng(0))
    assert (first[:, :3] == first[:, [0]]).all()
    assert (first[:, 3:6] == first[:, [3]]).all()
    assert (first[:, 0] + first[:, 3] == 2).all()
    assert (second.sum(axis=1) == 4).all()


def test_blocks_add_up_to_the_draws():
    units = find_units(3000, 3000)
    assert sum(units.iterate_blocks(2000)) == 2000
    assert max(units.iterate_blocks(2000)) * 6000 <= 1 << 20
