import numpy as np
import pandas as pd
import pytest

from ruler.paper.agreement import compare_numbers
from ruler.paper.findings import check_findings
from ruler.paper.page import count_cells, state_seconds, write_page
from ruler.paper.results import check_results
from ruler.paper.tables import compute_numbers


def write(results, folder, comparison=None):
    checked = check_results(results)
    numbers = compute_numbers(checked)
    comparison = compare_numbers(numbers) if comparison is None else comparison
    write_page(checked, numbers, comparison, check_findings(checked), folder / "page.md")
    return (folder / "page.md").read_text()


@pytest.fixture(scope="module")
def page(full_results, full_comparison, tmp_path_factory):
    return write(full_results, tmp_path_factory.mktemp("page"), full_comparison)


@pytest.fixture(scope="module")
def whole_page(all_results, all_comparison, tmp_path_factory):
    return write(all_results, tmp_path_factory.mktemp("page"), all_comparison)


@pytest.fixture(scope="module")
def whole(all_results):
    return check_results(all_results)


def test_the_page_states_settings_and_provenance(page):
    assert (
        "| forget-seeds | 3000 | 10 | MLP | Gradient Ascent, NegGrad+, Fine-Tuning, SCRUB | 1%, 5%, 10% | 5 "
        "| learning rate 0.0005; forget-set seed 999, 1000, 1001, 1002, 1003 | protocol | x86\\_64, 2 cores | 750 |"
    ) in page
    assert "| oracle-null | 450 | 10 | MLP | Oracle | 5% | 10 |" in page
    for line in ("- Device: cpu", "- Commit: abc1234", "- PyTorch: 2.4"):
        assert line in page
    assert "Pretrained model" not in page


def test_the_page_leads_with_the_counts_of_the_comparison(page, full_comparison):
    n_agree = int(full_comparison.agrees.sum())
    n_judged = int(full_comparison.agrees.notna().sum())
    assert f"judged: **{n_agree} agree, {n_judged - n_agree} differ**" in page.split("\n## ")[1]
    table = full_comparison[full_comparison.table == "4"]
    n_agree = int(table.agrees.sum())
    assert f"mean over seeds | 150 | 150 | 150 | {n_agree} | {150 - n_agree} |" in page
    assert "| Table 12 | M4 on large tables at a forget fraction of 5% | 30 | 0 | 0 | 0 | 0 |" in page
    assert "| Table 2 | Settings | 48 | 0 | 0 | 0 | 0 |" in page


def test_every_difference_is_listed_with_its_numbers(page, full_comparison):
    differing = full_comparison[full_comparison.agrees.notna() & ~full_comparison.agrees.fillna(True).astype(bool)]
    section = page.split("## Numbers that differ")[1].split("\n## ")[0]
    listed = [line for line in section.splitlines() if line.startswith("| T")][1:]
    assert len(listed) == len(differing) > 100
    first = differing.iloc[0]
    assert f"{first.ours:.4g}" in listed[0]
    assert f"{first.paper:.4g}" in listed[0]


def test_the_same_results_give_the_same_page(full_results, full_comparison, page, tmp_path):
    assert write(full_results, tmp_path, full_comparison) == page


def test_partial_results_are_not_judged(results, tmp_path):
    some = results[(results.dataset == "phoneme") & (results.seed < 2) & (results.study == "primary")]
    text = write(some, tmp_path)
    assert "agree, " not in text
    assert "none on as many runs as the paper's, so none is judged" in text
    listed = text.partition("## Numbers that are not judged")[2].partition("\n## ")[0]
    assert listed.count("| Table ") > 20
    assert " 2 of 10" in listed
    assert "## Numbers that differ" not in text
    assert "| primary | 36 of 1800 | 1 |" in text


def test_results_without_provenance_say_so(results, tmp_path):
    bare = results[results.study == "oracle-null"].drop(columns=["machine", "elapsed_s"]).assign(commit=None)
    text = write(bare, tmp_path)
    assert "| not recorded | not recorded | not recorded |" in text
    assert "- Commit" not in text


def test_old_tabular_and_new_diagnostic_results_share_a_page(whole_page):
    assert whole_page.startswith("# Reproduction of the paper")
    assert "The paper prints 1184 numbers. 1136 of them were measured here, 1136 on as many runs" in whole_page
    assert "| images | 210 | 3 | Three-layer CNN, ResNet-18 |" in whole_page
    assert "- Pretrained model: small-encoder" in whole_page
    assert "- Note: the identities were drawn once" in whole_page
    headings = [line for line in whole_page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Agreement",
        "## Numbers that differ",
        "## Findings of section 5.5",
        "## Verdicts of the audit",
        "## Face controls",
        "## Clinical leak",
        "## Runs",
        "## Tolerances",
    ]


def test_tabular_results_alone_have_no_diagnostic_section(page):
    assert not any(name in page for name in ("## Findings", "## Verdicts", "## Face", "## Clinical"))


def test_findings_are_summed_up(whole_page):
    line = next(line for line in whole_page.splitlines() if line.startswith("| 4. On faces M4 is high"))
    assert (
        "| 0.728 to 0.941 | 0.728 to 0.941 | 0.500 | M4 of the same faces in the oracle | 3 of 3 | confirmed |" in line
    )


def test_the_verdict_stands_beside_the_numbers(whole_page):
    assert (
        "| CIFAR-10 | ResNet-18 | 5% | SCRUB | 0.850 | 0.369 ± 0.115 | 0.514 | +0.0000 ± 0.0050 "
        "| residual 4, inconclusive 1 |"
    ) in whole_page


def test_verdicts_of_the_earlier_rule_are_told(diagnostics, whole_page, tmp_path):
    said = "An earlier rule, which read M2 and M4 alone and could not call a model damaged, gave the verdicts of "
    assert whole_page.count(f"{said}`large-tabular`, `images`, `faces`, `clinical`.") == 1
    new = diagnostics[diagnostics.study == "images"].assign(damage_similarity=0.9)
    assert "earlier rule" not in write(new, tmp_path)


def test_higgs_is_named_with_its_size_wherever_it_stands(whole_page):
    lines = [line for line in whole_page.splitlines() if line.startswith("| Higgs")]
    assert len(lines) == 21
    assert all("(about 51,200 rows, not 100,000)" in line for line in lines)


def test_every_table_of_the_page_is_whole(whole_page):
    blocks = [block for block in whole_page.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 8
    for block in blocks:
        assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1


def test_missing_columns_leave_cells_empty(diagnostics, tmp_path):
    bare = diagnostics.drop(columns=["verdict", "m4_p_value", "m4_effect", "precision", "note", "machine"])
    text = write(bare[bare.study == "images"], tmp_path)
    assert "| not recorded |" in text
    assert "nan" not in text.lower()


def test_a_smoke_run_is_called_one(diagnostics, whole_page, tmp_path):
    smoke = write(diagnostics[diagnostics.study == "clinical"].assign(size="smoke"), tmp_path)
    assert "`clinical` is a smoke run on few records, so none of it is judged." in smoke
    assert "## Findings" not in smoke
    assert "smoke" not in whole_page


def test_a_model_that_lost_its_accuracy_is_called_broken(diagnostics, tmp_path):
    is_chosen = (diagnostics.study == "images") & (diagnostics.method == "gradient_ascent")
    lost = diagnostics.assign(retain_accuracy=np.where(is_chosen, 0.1, 0.9), verdict="erased")
    lines = [line for line in write(lost, tmp_path).splitlines() if "| broken; erased" in line]
    assert lines
    assert all("Gradient Ascent" in line for line in lines)


def count(results, study):
    return count_cells(study, results[results.study == study])


def test_cells_are_counted_beside_the_plan(whole):
    assert count(whole, "primary") == "1800"
    some = whole[~((whole.method == "bad_teacher") & whole.dataset.isin(["cifar100", "mtsamples"]))]
    assert (count(some, "images"), count(some, "clinical")) == ("200 of 210", "120 of 135")
    primary = whole[whole.study == "primary"]
    moved = primary.assign(forget_fraction=primary.forget_fraction.replace(0.1, 0.2))
    assert count(moved, "primary") == "1200 of 1800, 600 beyond them"
    assert count(whole.assign(engine="ensemble", precision="float32"), "images") == "210"


def test_neither_a_smoke_run_nor_a_study_of_ones_own_has_a_plan(whole):
    few = whole[(whole.study == "images") & (whole.seed == 0)]
    assert count(few.assign(size="smoke"), "images") == "42"
    assert count(few.assign(study="mine", teacher_seed=np.nan), "mine") == "42"


@pytest.mark.parametrize(
    ("ends", "elapsed_s", "wall"),
    [
        ((10, 20), (10, 10), "20"),  # one after the other
        ((10, 12), (10, 8), "12"),  # side by side
        ((10, 8), (10, 2), "10"),  # one within the other
        ((10, 1000), (10, 30), "40"),  # stopped, and resumed much later
        ((50, 10, 1000), (50, 10, 5), "55"),  # in no order
    ],
)
def test_wall_seconds_are_those_in_which_a_cell_ran(ends, elapsed_s, wall):
    start = pd.Timestamp("2026-01-01T00:00:00Z")
    finished = [(start + pd.Timedelta(seconds=end)).isoformat() for end in ends]
    runs = pd.DataFrame({"elapsed_s": elapsed_s, "finished_at": finished})
    assert state_seconds(runs) == (f"{sum(elapsed_s)}", wall)
