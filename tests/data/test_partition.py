import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.core.errors import InputError
from ruler.data import partition_classes, partition_groups, partition_rows


def _is_whole(partition, n_rows):
    both = np.concatenate([partition.forget, partition.retain])
    return (
        sorted(both.tolist()) == list(range(n_rows))
        and (np.diff(partition.forget) > 0).all()
        and (np.diff(partition.retain) > 0).all()
    )


def test_rows_are_those_of_the_protocol():
    drawn = np.sort(np.random.RandomState(999).choice(455, 22, replace=False))
    partition = partition_rows(455, 0.05)
    np.testing.assert_array_equal(partition.forget, drawn)
    np.testing.assert_array_equal(partition.retain, np.setdiff1d(np.arange(455), drawn))
    assert partition.forget.dtype == np.int64
    assert partition_rows(455, 0.05, seed=1000).forget.tolist() != drawn.tolist()


@given(n_rows=st.integers(11, 500), fraction=st.floats(0.001, 0.9), seed=st.integers(0, 99))
def test_every_row_is_forgotten_or_retained(n_rows, fraction, seed):
    partition = partition_rows(n_rows, fraction, seed=seed)
    assert len(partition.forget) == max(10, int(np.floor(fraction * n_rows)))
    assert _is_whole(partition, n_rows)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 5, float("nan")])
def test_fraction_out_of_range(fraction):
    with pytest.raises(InputError, match="fraction must be between 0 and 1; got"):
        partition_rows(100, fraction)
    with pytest.raises(InputError, match="fraction must be between 0 and 1; got"):
        partition_groups([1, 2, 3], fraction=fraction)


def test_too_few_rows():
    with pytest.raises(InputError, match="leave something to forget and to retain; got 10 rows, 10 of them"):
        partition_rows(10, 0.1)
    with pytest.raises(InputError, match="leave something to forget and to retain; got 10 rows, 0 of them"):
        partition_rows(10, 0.05, minimum=0)


def test_classes():
    labels = np.array([2, 0, 1, 2, 0])
    assert partition_classes(labels, 2).forget.tolist() == [0, 3]
    assert partition_classes(labels, {0, 1}).forget.tolist() == [1, 2, 4]
    assert partition_classes(["a", "b", "a"], ["a"]).retain.tolist() == [1]
    assert _is_whole(partition_classes(labels, [1]), 5)


def test_class_that_does_not_occur():
    with pytest.raises(InputError, match=r"classes to forget must occur .* got 7\. Known are, for example, 0, 1, 2"):
        partition_classes([0, 1, 2], [1, 7])
    with pytest.raises(InputError, match="classes to forget must occur among the records; got none at all"):
        partition_classes([0, 1, 2], [])
    with pytest.raises(InputError, match="something must be left to retain; got every record to forget"):
        partition_classes([0, 1], [0, 1])


@given(
    groups=st.lists(st.sampled_from(["ann", "bob", "cy", "dan", "eve"]), min_size=8, max_size=60),
    fraction=st.floats(0.01, 0.5),
    seed=st.integers(0, 9),
)
def test_groups_are_never_cut_and_reach_the_fraction(groups, fraction, seed):
    try:
        partition = partition_groups(groups, fraction=fraction, seed=seed)
    except InputError:
        return  # the groups drawn hold every record
    names = np.array(groups)
    forgotten = set(names[partition.forget])
    assert forgotten.isdisjoint(names[partition.retain])
    assert len(partition.forget) >= fraction * len(groups)
    assert _is_whole(partition, len(groups))
    shuffled = names[::-1]
    again = partition_groups(shuffled, fraction=fraction, seed=seed)
    assert set(shuffled[again.forget]) == forgotten


def test_no_more_groups_than_needed_are_drawn():
    partition = partition_groups(np.repeat(np.arange(100), 10), fraction=0.05)
    assert len(partition.forget) == 50


def test_groups_by_name():
    groups = np.array(["p1", "p2", "p1", "p3"], dtype=object)
    assert partition_groups(groups, ["p3", "p1"]).forget.tolist() == [0, 2, 3]
    assert partition_groups([10, 20, 10], 10).forget.tolist() == [0, 2]
    with pytest.raises(
        InputError, match=r"groups to forget must occur .* got 'p9'\. Known are, for example, 'p1', 'p2"
    ):
        partition_groups(groups, "p9")


@pytest.mark.parametrize("groups", [np.array([1, 1, 2], dtype=object), pd.Series([1, 1, 2], dtype=object), list("112")])
@pytest.mark.parametrize("forget", [1, np.int64(1), [1], np.array([1], dtype=object), "1", {"1"}])
def test_numbers_among_names_of_any_type_are_found(groups, forget):
    assert partition_groups(groups, forget).forget.tolist() == [0, 1]


def test_mixed_names_are_found():
    groups = np.array([1, "a", 1, "b"], dtype=object)
    assert partition_classes(groups, groups[:2]).forget.tolist() == [0, 1, 2]


def test_text_in_place_of_numbers_is_told():
    with pytest.raises(InputError, match=r"got '1'\. Known are, for example, 1, 2\."):
        partition_groups([1, 1, 2], "1")


@pytest.mark.parametrize("arguments", [{}, {"forget": "a", "fraction": 0.1}])
def test_groups_need_names_or_a_fraction(arguments):
    with pytest.raises(InputError, match="exactly one of forget and fraction must be given; got forget="):
        partition_groups(["a", "b"], **arguments)


@pytest.mark.parametrize(
    "groups", [["a", None, "b"], [1.0, float("nan"), 2.0], pd.array(["a", pd.NA, "b"], dtype="string")]
)
def test_record_without_a_group(groups):
    with pytest.raises(InputError, match="groups must be given for every record; got none for 1 of"):
        partition_groups(groups, fraction=0.1)


@pytest.mark.parametrize("groups", [[], [[1, 2], [3, 4]]])
def test_groups_in_the_wrong_shape(groups):
    with pytest.raises(InputError, match="groups must be one name per record, shape"):
        partition_groups(groups, fraction=0.1)


@given(
    groups=st.lists(st.sampled_from(["ann", "bob", "cy", "dan", "eve"]), min_size=8, max_size=60),
    fraction=st.floats(0.01, 0.5),
    seed=st.integers(0, 9),
    choice=st.sampled_from(["random", "most_frequent", "single", "pair"]),
)
def test_chosen_groups_are_never_cut(groups, fraction, seed, choice):
    try:
        partition = partition_groups(groups, fraction=fraction, seed=seed, choice=choice)
    except InputError:
        return  # the groups chosen hold every record
    names = np.array(groups)
    forgotten = set(names[partition.forget])
    assert forgotten.isdisjoint(names[partition.retain])
    assert _is_whole(partition, len(groups))
    n_wanted = {"single": 1, "pair": 2}.get(choice)
    assert len(partition.forget) >= fraction * len(groups) if n_wanted is None else len(forgotten) == n_wanted
    shuffled = names[::-1]
    again = partition_groups(shuffled, fraction=fraction, seed=seed, choice=choice)
    assert set(shuffled[again.forget]) == forgotten
    if choice == "most_frequent":
        sizes = {name: groups.count(name) for name in groups}
        rest = [size for name, size in sizes.items() if name not in forgotten]
        assert min(sizes[name] for name in forgotten) >= max(rest)
        assert len(partition.forget) - min(sizes[name] for name in forgotten) < fraction * len(groups)


def test_choices_and_their_seeds():
    groups = np.repeat([f"p{number:02d}" for number in range(20)], np.arange(1, 21))
    most = partition_groups(groups, fraction=0.15, choice="most_frequent")
    assert set(groups[most.forget]) == {"p19", "p18"}  # 20 of 210, and then 39
    alone = {groups[partition_groups(groups, fraction=0.1, seed=seed, choice="single").forget[0]] for seed in range(30)}
    assert len(alone) > 5
    two = {
        tuple(np.unique(groups[partition_groups(groups, fraction=0.1, seed=s, choice="pair").forget]))
        for s in range(30)
    }
    assert len(two) > 20
    tied = partition_groups(["b", "b", "a", "a", "c", "d"], fraction=0.2, choice="most_frequent")
    assert tied.forget.tolist() == [2, 3]


def test_another_choice_or_fraction():
    with pytest.raises(InputError, match="choice must be one of random, most_frequent, single, pair; got 'largest'"):
        partition_groups(["a", "b"], fraction=0.1, choice="largest")
    with pytest.raises(InputError, match="fraction must be between 0 and 1; got 5"):
        partition_groups(["a", "b"], fraction=5, choice="single")
    with pytest.raises(InputError, match="something must be left to retain"):
        partition_groups(["a", "a"], fraction=0.5, choice="single")
