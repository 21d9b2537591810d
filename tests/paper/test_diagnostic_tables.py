import pytest

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.published import load_table
from ruler.paper.results import check_results
from ruler.paper.tables import TABLES, compute_numbers
from ruler.paper.tables.layout import arrange
from ruler.paper.tables.numbers import KEYS, as_frame
from ruler.paper.typeset import to_latex, to_markdown


def compute(results, table):
    return as_frame(TABLES[table].compute(check_results(results)))


def identities(frame):
    rows = frame[["column", *KEYS]].itertuples(index=False)
    return {tuple(None if cell != cell else cell for cell in row) for row in rows}


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


def test_the_original_stands_first_and_a_spread_has_no_sign(diagnostics):
    printed = arrange(compute(diagnostics, "13"), TABLES["13"].layout)
    assert [row.labels[-1] for row in printed.rows[:7]] == [
        *("Original", "Gradient Ascent", "NegGrad+", "Fine-Tuning", "SCRUB", "Bad Teacher", "Oracle"),
    ]
    page = to_markdown(printed, "Table 13")
    assert "| CIFAR-10 | ResNet-18 | 5% | NegGrad+ | 0.1598 ± 0.0543 | 0.1598 ± 0.0543 | 0.514 |" in page
    assert "± +" not in page


def test_group_headings_stand_over_their_columns(diagnostics):
    lines = to_latex(arrange(compute(diagnostics, "face_controls"), TABLES["face_controls"].layout), "x").splitlines()
    groups = next(line for line in lines if "multicolumn" in line)
    assert groups.startswith(" & " * 6 + r"\multicolumn{4}{c}{$M_4$}")
    assert lines[lines.index(groups) + 1].startswith(r"\cmidrule(lr){7-10}")
