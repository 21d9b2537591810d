"""Tables of the diagnostics: images, clinical texts and faces, and of language models."""

import math

import numpy as np
import pandas as pd
import pytest
from tests.paper.language_rows import make_rows
from tests.paper.tables.cases import identities

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.figures import FIGURES, render
from ruler.paper.published import load_table
from ruler.paper.results import check_results
from ruler.paper.tables import TABLES, arrange, compute_numbers
from ruler.paper.tables.diagnostics import choose_rates
from ruler.paper.tables.numbers import KEYS, as_frame
from ruler.stats.intervals import combine_p_values


def compute(results, table):
    return as_frame(TABLES[table].compute(check_results(results)))


@pytest.mark.parametrize("table", ["12", "13", "14"])
def test_full_results_give_the_published_numbers_and_quote_them(diagnostics, table):
    ours, paper = compute(diagnostics, table), load_table(table)
    assert identities(paper) <= identities(ours)
    assert not ours.duplicated(["column", *KEYS]).any()
    assert (ours.n == ours.n_paper).all()
    keys = ["dataset", "architecture", "method", "forget_fraction"]
    quoted = ours[ours.column == "m4_mean_paper"].set_index(keys).value
    printed = paper[paper.column == "m4_mean"].set_index(keys).paper
    assert quoted.sort_index().to_dict() == printed.sort_index().to_dict()


def test_full_results_give_every_number_of_section_5_5(diagnostics):
    text = load_table("text")
    published = text[text.source == "section 5.5"]
    ours = compute(diagnostics, "text")
    assert identities(published) <= identities(ours)
    assert (ours.n == ours.n_paper).all()


def test_bad_teacher_and_oracle_are_ours_alone(diagnostics):
    for table in ("12", "13", "14", "clinical"):
        numbers = compute(diagnostics, table)
        quoted = numbers[numbers.column.str.endswith("_paper")]
        assert set(quoted.method) <= {*APPROXIMATE_METHODS, "original"}
        assert {"bad_teacher", "oracle"} <= set(numbers.method)


def test_ranges_are_of_condition_means(diagnostics):
    where = (diagnostics.architecture == "resnet18") & (diagnostics.method == "scrub") & (diagnostics.dataset == "svhn")
    diagnostics.loc[where, "m4"] = [0.0, 0.1, 0.2, 0.3, 0.4]
    numbers = compute(diagnostics, "text")
    part = numbers[(numbers.study == "images") & (numbers.method == "scrub") & (numbers.architecture == "resnet18")]
    found = part.set_index("column").value
    assert found["m4_lowest"] == pytest.approx(0.1131)
    assert found["m4_highest"] == pytest.approx(0.3689)
    diagnostics.loc[where, "m4"] += 0.5
    numbers = compute(diagnostics, "text")
    part = numbers[(numbers.study == "images") & (numbers.method == "scrub") & (numbers.architecture == "resnet18")]
    found = part.set_index("column").value
    assert found["m4_highest"] == pytest.approx(0.7)
    assert found["m4_highest_sd"] == pytest.approx(0.158, abs=1e-3)


def test_other_choices_of_identities_and_the_leak_stay_out_of_the_papers_tables(diagnostics):
    before = compute(diagnostics, "14"), compute(diagnostics, "clinical"), compute(diagnostics, "text")
    is_other = (diagnostics.forget_choice != "random") | (diagnostics.dataset == "mtsamples_rows")
    diagnostics.loc[is_other, ["m2", "m4"]] = 0.99
    after = compute(diagnostics, "14"), compute(diagnostics, "clinical"), compute(diagnostics, "text")
    for old, new in zip(before, after, strict=True):
        assert old.value.tolist() == pytest.approx(new.value.tolist(), nan_ok=True)


@pytest.mark.parametrize("study", ["large-tabular", "images", "faces", "clinical"])
def test_one_study_alone_gives_its_own_tables(diagnostics, study):
    found = compute_numbers(check_results(diagnostics[diagnostics.study == study]))
    filled = {name for name, frame in found.items() if len(frame)}
    assert (
        filled
        == {
            "large-tabular": {"12", "text"},
            "images": {"13", "text"},
            "faces": {"14", "face_controls", "text"},
            "clinical": {"clinical", "clinical_leak", "text"},
        }[study]
    )


def test_one_seed_has_no_spread_and_says_so(diagnostics):
    for table in ("14", "text"):
        numbers = compute(diagnostics[diagnostics.seed == 0], table)
        missing = numbers[numbers.value.isna()]
        assert len(missing)
        assert missing.note.ne("").all()


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


def test_the_papers_rank_is_held_against_the_placebo_sets(diagnostics):
    numbers = compute(diagnostics, "face_controls")
    holds = numbers[numbers.column == "m4_placebo_holds_paper"]
    assert holds.forget_choice.unique().tolist() == ["random"]  # the paper has no other choice of identities
    assert holds.value.tolist() == [0, 1, 1]
    assert (
        value(compute(diagnostics.assign(m4_placebo_high=0.96), "face_controls"), holds.column.iloc[0], **RANDOM) == 1
    )
    unknown = compute(diagnostics.assign(m4_placebo_high=np.nan), "face_controls")
    missing = unknown[unknown.column == "m4_placebo_holds_paper"]
    assert missing.value.isna().all()
    assert set(missing.note) == {"no run measured this"}


def test_the_leak_is_the_difference_of_the_two_splits(diagnostics):
    is_leak = (diagnostics.dataset == "mtsamples_rows") & (diagnostics.method == "original")
    diagnostics.loc[is_leak, "m4"] += 0.2
    numbers = compute(diagnostics, "clinical_leak")
    keys = {"method": "original", "forget_fraction": 0.1}
    assert value(numbers, "m4_distinct_mean", **keys) == pytest.approx(0.501)
    assert value(numbers, "m4_rows_mean", **keys) == pytest.approx(0.7)
    assert value(numbers, "m4_leak", **keys) == pytest.approx(0.199)
    assert value(numbers, "m4_leak_low", **keys) > 0
    single = compute(diagnostics[diagnostics.seed == 0], "clinical_leak")
    assert set(single[single.column == "m4_leak_low"].note) == {"one run has no spread"}


def test_without_the_split_by_row_there_is_no_leak_to_show(diagnostics):
    assert compute(diagnostics[diagnostics.dataset != "mtsamples_rows"], "clinical_leak").empty


@pytest.fixture
def results() -> pd.DataFrame:
    return check_results(make_rows())


def test_the_rate_is_the_largest_that_keeps_retained_authors_or_else_the_smallest(results):
    chosen = choose_rates(results).groupby("method")["learning_rate"].unique()
    assert chosen["npo"].tolist() == [5e-5]
    assert chosen["rmu"].tolist() == [1e-5]
    changed = results.assign(forget_accuracy=1.0, test_accuracy=0.0)
    assert choose_rates(changed)["learning_rate"].equals(choose_rates(results)["learning_rate"])


def test_the_table_has_means_and_counts_of_verdicts(results):
    table = TABLES["language_models"]
    rows = {row.keys[-1]: row for row in arrange(as_frame(table.compute(results)), table)}
    assert set(rows) == {"npo", "rmu", "oracle", "original"}
    npo = rows["npo"].numbers
    assert (npo["n_erased"], npo["n_inconclusive"], npo["n_residual"]) == (1, 1, 0)
    assert npo["m2_effect_mean"] == pytest.approx(0.2)
    assert npo["uds_mean"] == pytest.approx(0.125)
    assert math.isnan(npo["truth_ratio_mean"])
    assert rows["rmu"].numbers["learning_rate_mean"] == 1e-5
    assert math.isnan(rows["oracle"].numbers["n_erased"])


def test_the_figure_has_a_line_per_method_over_the_layers(results):
    figure = FIGURES["language_layers"]
    points = figure.gather(results)
    assert set(points["method"]) == {"npo", "rmu", "original"}
    assert points.groupby("layer")["value"].mean().tolist() == pytest.approx([0.5, 0.3])
    drawn = figure.draw(points)
    assert [len(axes.lines) for axes in drawn.axes] == [4]  # the null, and three models
    assert render(drawn, "png").startswith(b"\x89PNG")


def test_other_studies_give_no_table_and_no_figure(results):
    others = results.assign(study="clinical")
    assert TABLES["language_models"].compute(others) == []
    assert FIGURES["language_layers"].gather(others).empty
