import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ruler.paper.comparison import compare_numbers
from ruler.paper.document import write_document
from ruler.paper.explanations import (
    EXPLANATIONS,
    FEWER_ROWS,
    OTHER_ENCODER,
    OTHER_THAN_IDENTITIES,
    UNTESTED_IDENTITIES,
    explain,
    find_traits,
)
from ruler.paper.results import check_results
from ruler.paper.tables import compute_numbers

ROW = {"table": "1", "column": "m2_mean", "paper": -0.001, "ours": -0.0018, "difference": -0.0008, "study": "primary"}
ROW |= {"dataset": "", "method": "fine_tuning", "other_method": "", "forget_fraction": 0.01}


@pytest.fixture(scope="module")
def full(full_results, full_comparison):
    return check_results(full_results), full_comparison


@pytest.fixture(scope="module")
def page(full, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "reproduction.md"
    write_document(*full, path)
    return path.read_text()


def test_the_page_states_settings_and_provenance(page):
    assert (
        "| forget-seeds | 3000 | 10 | MLP | Gradient Ascent, NegGrad+, Fine-Tuning, SCRUB | 1%, 5%, 10% | 5 "
        "| learning rate 0.0005; forget-set seed 999, 1000, 1001, 1002, 1003 | protocol | x86_64, 2 cores | 750 |"
    ) in page
    assert "| oracle-null | 450 | 10 | MLP | Oracle | 5% | 10 |" in page
    for line in ("- Device: cpu", "- Commit: abc1234", "- PyTorch: 2.4"):
        assert line in page
    assert "Pretrained model" not in page


def test_the_page_counts_what_the_comparison_holds(page, full):
    _, comparison = full
    table = comparison[comparison.table == "4"]
    n_agree = int(table.agrees.sum())
    assert f"| Table 4 | 150 | 150 | 150 | {n_agree} | {150 - n_agree} |" in page
    assert f"{n_agree} of 150 judged numbers agree." in page
    assert "| Table 12 | 30 | 0 | 0 | 0 | 0 |" in page
    assert "| Table 12 | large-tabular | 30 | not measured |" in page


def test_every_difference_is_listed_with_its_numbers(page, full):
    _, comparison = full
    differing = comparison[comparison.agrees.notna() & ~comparison.agrees.fillna(True).astype(bool)]
    listed = [line for line in page.splitlines() if line.count("|") == 8 and "`" in line]
    assert len(listed) == len(differing) > 100
    first = differing.iloc[0]
    assert any(f"{first.ours:.4g}" in line and f"{first.paper:.4g}" in line for line in listed)


def test_every_mark_has_a_reason(page):
    for section in page.split("\n## ")[3:]:
        lines = [line for line in section.splitlines() if line.count("|") == 8 and "`" in line]
        marks = {mark for line in lines for mark in line.split("|")[6].strip().split(", ")}
        reasons = {line.partition(".")[0] for line in section.splitlines() if line[:1].isdigit() and ". " in line[:4]}
        assert marks - {"not known", "Reason"} <= reasons


def test_the_same_results_give_the_same_page(full, page, tmp_path):
    write_document(*full, tmp_path / "again.md")
    assert (tmp_path / "again.md").read_text() == page


def test_partial_results_are_not_judged(results, tmp_path):
    some = check_results(results[(results.dataset == "phoneme") & (results.seed < 2) & (results.study == "primary")])
    write_document(some, compare_numbers(compute_numbers(some)), tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "**0 agree, 0 differ**" in page
    assert "Measured, but not on as many runs as the paper's, and so not judged." in page
    assert "## Table 6: M2 and M4 under mini-batch training\n\nNot run." in page


def test_results_without_provenance_say_so(results, tmp_path):
    some = check_results(results[results.study == "oracle-null"])
    bare = some.drop(columns=["machine", "elapsed_s"]).assign(commit=None)
    write_document(bare, compare_numbers(compute_numbers(some)), tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| not recorded | not recorded | not recorded |" in page
    assert "- Commit: not recorded" in page


def test_reasons_are_stated_only_where_they_apply():
    protocol = frozenset({"protocol"})
    [draw] = explain(ROW, protocol)
    assert "500 retain records" in draw
    assert explain(ROW | {"difference": -0.01}, protocol) == []
    assert any("SCRUB" in text for text in explain(ROW | {"method": "scrub"}, protocol))
    assert any("ensemble" in text for text in explain(ROW, frozenset({"ensemble"})))
    p_value = ROW | {"column": "m2_p_mixed", "paper": 0.3, "ours": 0.001}
    assert explain(p_value, protocol) == []
    assert any("near 0.05" in text for text in explain(p_value | {"ours": 0.049}, protocol))
    assert any("singular" in text for text in explain(p_value | {"paper": math.nan}, protocol))
    rank = ROW | {"column": "m4_mean"}
    assert explain(rank, protocol) == []
    assert any("not of one run" in text for text in explain(rank | {"forget_fraction": 0.05}, protocol))


def test_every_reason_can_apply(all_comparison):
    comparison = all_comparison
    rows = comparison[comparison.n.notna()].assign(paper=np.nan, difference=0.0).to_dict("records")
    rows += comparison[comparison.n.notna()].to_dict("records")
    traits = frozenset({"ensemble", OTHER_ENCODER, FEWER_ROWS, OTHER_THAN_IDENTITIES, UNTESTED_IDENTITIES})
    stated = {text for row in rows for text in explain(row, traits)}
    assert stated == {entry.text for entry in EXPLANATIONS}


def test_a_reason_for_faces_rests_on_whole_runs_alone():
    recorded = Path(__file__).parents[2] / "docs" / "results.parquet"
    faces = check_results(pd.read_parquet(recorded, filters=[("study", "==", "faces")]))
    assert OTHER_THAN_IDENTITIES in find_traits(faces)
    assert UNTESTED_IDENTITIES in find_traits(faces.assign(size="smoke"))


def test_a_diagnostic_reason_is_stated_only_of_runs_it_is_true_of(diagnostics):
    checked = check_results(diagnostics)
    assert find_traits(checked) == {"protocol", OTHER_ENCODER, FEWER_ROWS, UNTESTED_IDENTITIES}
    row = ROW | {"table": "text", "study": "clinical", "dataset": "mtsamples"}
    assert any("Bio_ClinicalBERT" in text for text in explain(row, find_traits(checked)))
    as_paper = checked.assign(model=checked.model.replace("small-encoder", "emilyalsentzer/Bio_ClinicalBERT"))
    as_paper.loc[as_paper.dataset == "higgs", "n_forget"] = 4000
    assert find_traits(as_paper) == {"protocol", UNTESTED_IDENTITIES}
    assert not any("Bio_ClinicalBERT" in text for text in explain(row, find_traits(as_paper)))
    image = ROW | {"table": "13", "study": "images", "dataset": "svhn"}
    assert any("crops" in text for text in explain(image, frozenset()))
    assert not any("crops" in text for text in explain(image | {"dataset": "cifar10"}, frozenset()))


def test_identities_are_no_reason_where_placebo_sets_leave_out_the_papers_rank(diagnostics):
    faces = check_results(diagnostics[diagnostics.study == "faces"])
    row = ROW | {"table": "14", "study": "faces", "dataset": "lfw", "column": "m4_mean", "method": "original"}

    def explain_with(high):
        traits = find_traits(faces.assign(m4_placebo_high=high))
        return [text for text in explain(row, traits) if "identities are not the paper's" in text]

    for high in (0.8, math.nan):  # the range holds two of the paper's three values; no range was measured
        [text] = explain_with(high)
        assert "M4 depends on which they are." in text
    [text] = explain_with(0.7)
    assert "that alone does not explain the paper's M4 before unlearning" in text


def test_the_page_lists_planned_cells_that_were_not_run(all_results, all_comparison, tmp_path):
    checked = check_results(all_results)
    is_left_out = (checked.method == "bad_teacher") & (checked.dataset == "cifar100")
    write_document(checked[~is_left_out], all_comparison, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert "| images | 200 of 210 | 3 | Three-layer CNN, ResNet-18 |" in page
    _, _, section = page.partition("## Not measured")
    assert "| images | CIFAR-100 | Three-layer CNN, ResNet-18 | Bad Teacher | 5% | 0 to 4 | 10 |" in section
    assert "| Table 2 | faces | 2 | a setting, not a measurement |" in section


def test_old_tabular_and_new_diagnostic_results_share_a_page(all_results, all_comparison, tmp_path):
    write_document(check_results(all_results), all_comparison, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Reproduction of the paper")
    assert "The paper prints 1184 numbers. 1136 of them were measured here, 1136 on as many runs" in page
    assert "| images | 210 | 3 | Three-layer CNN, ResNet-18 |" in page
    assert "| primary | 1800 | 10 | MLP |" in page
    assert "- Pretrained model: small-encoder" in page
    assert "30 of 30 judged numbers agree." in page
