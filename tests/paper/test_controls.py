import math

import numpy as np
import pytest

from ruler.paper.diagnostics.readings import read_chance, read_face_controls, read_leak
from ruler.paper.intervals import combine_p_values
from ruler.paper.results import check_results
from ruler.paper.tables import TABLES
from ruler.paper.tables.layout import arrange
from ruler.paper.tables.numbers import as_frame


def compute(results, table):
    return as_frame(TABLES[table].compute(check_results(results)))


def value(numbers, column, **keys):
    mask = numbers.column == column
    for key, wanted in keys.items():
        mask &= numbers[key] == wanted
    [found] = numbers[mask].value
    return found


def is_faces(results, method, choice="random", fraction=0.01):
    is_choice = (results.study == "faces") & (results.forget_choice == choice)
    return is_choice & (results.method == method) & (results.forget_fraction == fraction)


RANDOM = {"forget_choice": "random", "forget_fraction": 0.01}


def test_face_controls_are_the_rows_they_name(diagnostics):
    where = is_faces(diagnostics, "original")
    diagnostics.loc[where, "m4_placebo_p"] = [0.4, 0.01, 0.3, 0.02, 0.2]
    diagnostics.loc[where, "m4_placebo_low"] = [0.1, 0.2, 0.3, 0.2, 0.2]
    numbers = compute(diagnostics, "face_controls")
    assert value(numbers, "m4_original_mean", **RANDOM) == pytest.approx(0.941)
    assert value(numbers, "m4_oracle_mean", **RANDOM) == pytest.approx(0.5)
    assert value(numbers, "m4_held_out_mean", **RANDOM) == pytest.approx(0.514)
    assert value(numbers, "m4_placebo_low_mean", **RANDOM) == pytest.approx(0.2)
    found = [value(numbers, f"m4_original_p_{end}", **RANDOM) for end in ("median", "min", "max", "combined")]
    assert found == pytest.approx([0.2, 0.01, 0.4, combine_p_values([0.4, 0.01, 0.3, 0.02, 0.2])])
    assert value(numbers, "n_groups_mean", **RANDOM) == 2


def test_the_difference_of_models_is_paired_by_seed_and_forget_set(diagnostics):
    original, oracle = is_faces(diagnostics, "original"), is_faces(diagnostics, "oracle")
    diagnostics.loc[original, "m4"] = [0.9, 0.8, 0.7, 0.6, 0.5]
    diagnostics.loc[oracle, "m4"] = [0.8, 0.7, 0.6, 0.5, 0.4]
    numbers = compute(diagnostics, "face_controls")
    ends = [value(numbers, f"m4_difference{end}", **RANDOM) for end in ("", "_low", "_high")]
    assert ends == pytest.approx([0.1, 0.1, 0.1])
    moved = diagnostics.assign(forget_seed=np.where(oracle, 1000, diagnostics.forget_seed))
    assert math.isnan(value(compute(moved, "face_controls"), "m4_difference", **RANDOM))


def test_every_choice_of_identities_has_its_row(diagnostics):
    numbers = compute(diagnostics, "face_controls")
    places = set(zip(numbers.forget_choice, numbers.forget_fraction, strict=True))
    assert places == {
        ("random", 0.01),
        ("random", 0.05),
        ("random", 0.1),
        ("most_frequent", 0.1),
        ("single", 0.1),
        ("pair", 0.1),
    }


def read_first(results):
    return next(text for text in read_face_controls(compute(results, "face_controls")) if text.startswith("random, 1%"))


def test_an_oracle_that_gives_as_much_is_read_as_no_memorisation(diagnostics):
    diagnostics.loc[is_faces(diagnostics, "oracle"), "m4"] = diagnostics.loc[
        is_faces(diagnostics, "original"), "m4"
    ].to_numpy()
    text = read_first(diagnostics)
    assert "as much without training on them, so not memorisation" in text
    assert "(2 people, 43 images)" in text
    assert "not memorisation. Identities that neither model saw have 0.514. Other sets" in text
    assert "neither model saw" not in read_first(diagnostics.assign(m4_held_out=np.nan))


def test_an_oracle_at_the_null_is_read_as_an_effect_of_training(diagnostics):
    text = read_first(diagnostics)
    assert "training on them raises it, by all of its distance from 0.50." in text
    diagnostics.loc[is_faces(diagnostics, "oracle"), "m4"] = 0.7205
    text = read_first(diagnostics)
    assert "by 50% of its distance from 0.50; the rest is there without it and is not memorisation." in text


def test_other_signs_of_the_difference_are_read(diagnostics):
    diagnostics.loc[is_faces(diagnostics, "original"), "m4"] = 0.45
    diagnostics.loc[is_faces(diagnostics, "oracle"), "m4"] = [0.60, 0.61, 0.6, 0.61, 0.6]
    assert "training on them lowers it" in read_first(diagnostics)
    diagnostics.loc[is_faces(diagnostics, "oracle"), "m4"] = [0.30, 0.31, 0.3, 0.31, 0.3]
    assert "training on them raises it, to a value that is not above 0.50." in read_first(diagnostics)
    assert "too few seeds to tell the two apart" in read_first(diagnostics[diagnostics.seed == 0])


def test_placebo_sets_say_what_so_few_identities_give(diagnostics):
    assert "stray from 0.300 to 0.800 by chance: the original's M4 lies beyond that" in read_first(diagnostics)
    wide = diagnostics.assign(m4_placebo_high=0.96)
    assert "lies within that (combined p = 0.500)" in read_first(wide)
    bare = diagnostics.assign(m4_placebo_low=np.nan, m4_placebo_p=np.nan, n_groups=np.nan)
    assert "Placebo sets were not measured." in read_first(bare)
    assert "people not counted" in read_first(bare)
    no_p = diagnostics.assign(m4_placebo_p=np.nan)
    assert "lies beyond that. The paper's" in read_first(no_p)


def test_the_papers_rank_is_held_against_the_placebo_sets(diagnostics):
    assert read_first(diagnostics).endswith("The paper's M4 of 0.941 lies beyond it.")
    assert read_first(diagnostics.assign(m4_placebo_high=0.96)).endswith("The paper's M4 of 0.941 lies within it.")
    assert "The paper's" not in read_first(diagnostics.assign(m4_placebo_high=np.nan))
    numbers = compute(diagnostics, "face_controls")
    holds = numbers[numbers.column == "m4_placebo_holds_paper"]
    assert holds.forget_choice.unique().tolist() == ["random"]  # the paper has no other choice of identities
    assert holds.value.tolist() == [0, 1, 1]


def test_other_choices_are_named_by_people_and_images_not_by_a_fraction(diagnostics):
    is_single = diagnostics.forget_choice == "single"
    diagnostics.loc[is_single, ["n_groups", "n_forget"]] = [1, 11]
    numbers = compute(diagnostics, "face_controls")
    *_, most, alone, two = read_face_controls(numbers)
    assert most.startswith("most frequent (16 people, 432 images): ")
    assert most.endswith("not a test among single identities of that size, for no other has as many images.")
    assert alone.startswith("one alone (one person, 11 images): ")
    assert "Other identities alone, of any number of images, stray from 0.300 to 0.800" in alone
    assert "not a test among" not in alone
    assert two.startswith("two alone (")
    assert "Other pairs of identities, of any number of images, stray from 0.300 to 0.800" in two
    rows = arrange(numbers, TABLES["face_controls"].layout).rows
    assert [row.labels[2:] for row in rows[2:]] == [
        ("random", "10%"),
        ("most frequent", ""),
        ("one alone", ""),
        ("two alone", ""),
    ]


def test_chance_is_told_of_the_fewest_identities_measured(diagnostics):
    diagnostics.loc[diagnostics.forget_choice == "single", "m4_placebo_low"] = 0.1
    text = read_chance(compute(diagnostics, "face_controls"))
    assert "one alone from 0.100 to 0.800; two alone from 0.300 to 0.800; random sets grown to 1%" in text
    assert text.endswith("from 0.300 to 0.800.")
    without_pairs = read_chance(compute(diagnostics[diagnostics.forget_choice != "pair"], "face_controls"))
    assert without_pairs.endswith("Sets of exactly two were not measured apart.")
    several = read_chance(compute(diagnostics[diagnostics.forget_choice != "single"], "face_controls"))
    assert "one alone" not in several
    assert "from 0.300 to 0.800" in several
    assert read_chance(compute(diagnostics.assign(m4_placebo_low=np.nan), "face_controls")) == ""


def test_the_leak_is_the_difference_of_the_two_splits(diagnostics):
    is_leak = (diagnostics.dataset == "mtsamples_rows") & (diagnostics.method == "original")
    diagnostics.loc[is_leak, "m4"] += 0.2
    numbers = compute(diagnostics, "clinical_leak")
    keys = {"method": "original", "forget_fraction": 0.1}
    assert value(numbers, "m4_distinct_mean", **keys) == pytest.approx(0.501)
    assert value(numbers, "m4_rows_mean", **keys) == pytest.approx(0.7)
    assert value(numbers, "m4_leak", **keys) == pytest.approx(0.199)
    readings = read_leak(numbers)
    assert [text.partition(":")[0] for text in readings[:2]] == ["1%, original model", "1%, oracle model"]
    assert readings[4].endswith("the leak raises M4.")
    assert readings[5].endswith("no effect of the leak beyond the seeds' noise.")
    diagnostics.loc[is_leak, "m4"] -= 0.4
    assert read_leak(compute(diagnostics, "clinical_leak"))[4].endswith("the leak lowers M4.")
    single = compute(diagnostics[diagnostics.seed == 0], "clinical_leak")
    assert "too few seeds of both" in read_leak(single)[0]


def test_without_the_split_by_row_there_is_no_leak_to_show(diagnostics):
    assert compute(diagnostics[diagnostics.dataset != "mtsamples_rows"], "clinical_leak").empty


@pytest.mark.parametrize("table", ["12", "13", "14", "clinical", "face_controls", "clinical_leak"])
def test_no_printed_row_is_blank(diagnostics, table):
    printed = arrange(compute(diagnostics, table), TABLES[table].layout)
    assert printed.rows
    for row in printed.rows:
        empty = [column.header for column, cell in zip(printed.columns, row.cells, strict=True) if not cell.text]
        assert set(empty) <= {"paper", "holds the paper's"}, row.keys
