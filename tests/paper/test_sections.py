import numpy as np
import pandas as pd
import pytest

from ruler.paper.comparison import compare_numbers
from ruler.paper.diagnostics.conditions import count_values, gather_conditions
from ruler.paper.diagnostics.sections import describe_diagnostics
from ruler.paper.results import check_results
from ruler.paper.tables import compute_numbers


def describe(results):
    checked = check_results(results)
    return "\n".join(describe_diagnostics(checked, compare_numbers(compute_numbers(checked))))


@pytest.fixture(scope="module")
def page(published_diagnostics):
    return describe(published_diagnostics)


def test_tabular_results_alone_have_no_diagnostic_section(results):
    assert describe(results[(results.study == "oracle-null")]) == ""


def test_every_study_and_control_has_its_section(page):
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Findings of section 5.5, confirmed or refuted",
        "## Large tables: the study `large-tabular`",
        "## Images: the study `images`",
        "## Faces: the study `faces`",
        "## Face controls",
        "## Clinical text: the study `clinical`",
        "## Clinical leak",
    ]


def test_a_study_states_time_machine_precision_and_accuracies(page):
    assert (
        "210 cells of 5 seeds on NVIDIA H200, 16 cores: 2 s without pauses, 420 s of work. Precision: float32."
    ) in page
    assert "| CIFAR-10 | ResNet-18 | Original | 0.750 | 0.850 | 0.800 | 0.750 |" in page
    assert "Pretrained model: small-encoder." in page
    assert "Share of masked words found" in page


def test_the_verdict_stands_beside_the_papers_metric(page):
    assert (
        "| CIFAR-10 | ResNet-18 | 5% | SCRUB | 0.850 | 0.369 | 0.369 ± 0.115 | 0.514 |  | +0.0000 ± 0.0050 "
        "| residual 4, inconclusive 1 | inconclusive 5 | 0.500 | 0.200 (0.200) "
        "| residual 5 | 0.560 | 0.030 (0.010 to 0.050) |"
    ) in page
    assert (
        "| MTSamples | BERT, masked words | 5% | NegGrad+ | 0.850 |  | 0.500 ± 0.010 | 0.514 | -0.048 | -0.0480" in page
    )


def test_norm_loss_and_damage_are_shown_where_the_audit_read_them(diagnostics, page):
    assert "By loss" not in page
    assert page.count("These verdicts were given by an earlier rule, from M2 and M4 alone") == 4
    new = diagnostics[diagnostics.study == "images"].assign(
        **{f"{name}_verdict": "residual" for name in ("norm", "loss")},
        **{f"{name}_{value}": 0.25 for name in ("norm", "loss") for value in ("effect", "p_value")},
        damage_similarity=0.9,
    )
    judged = describe(new)
    assert "earlier rule" not in judged
    assert "| By norm | Norm effect | Norm p | By loss | Loss effect | Loss p | Similarity |" in judged
    line = next(line for line in judged.splitlines() if line.startswith("| CIFAR-10 | ResNet-18 | 5% | SCRUB |"))
    assert line.endswith("| residual 5 | 0.250 | 0.250 (0.250) | residual 5 | 0.250 | 0.250 (0.250) | 0.900 |")


def test_higgs_is_named_with_its_size_wherever_it_stands(page):
    lines = [line for line in page.splitlines() if line.startswith("| Higgs")]
    assert len(lines) == 6 + 21
    assert all("(about 51,200 rows, not 100,000)" in line for line in lines)


def test_notes_of_the_runs_are_listed(page):
    assert page.count("- the identities were drawn once") == 1


def test_every_table_of_the_page_is_whole(page):
    blocks = [block for block in page.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 2 + 4 * 2 + 2
    for block in blocks:
        assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1


def test_missing_columns_leave_cells_empty_and_say_not_recorded(diagnostics):
    bare = diagnostics.drop(columns=["verdict", "m4_p_value", "m4_effect", "precision", "note", "machine"])
    page = describe(bare[bare.study == "images"])
    assert "on not recorded: " in page
    assert "nan" not in page.lower()
    assert "not recorded\n-" not in page


def test_a_smoke_run_is_called_one(diagnostics, page):
    smoke = describe(diagnostics[diagnostics.study == "clinical"].assign(size="smoke"))
    assert "A smoke run on few records, to see that the study runs: nothing of it is judged." in smoke
    assert "## Findings" not in smoke
    assert "smoke" not in page


def test_conditions_count_verdicts_and_put_the_original_first(diagnostics):
    found = gather_conditions(check_results(diagnostics), "faces")
    assert found.method.tolist()[:3] == ["original", "gradient_ascent", "neggrad_plus"]
    assert len(found) == 3 * 7
    assert set(found[found.method == "scrub"].verdict) == {"residual 4, inconclusive 1"}
    assert set(found[found.method == "oracle"].verdict) == {""}
    np.testing.assert_allclose(found.m4_p_value_median, 0.03)


def test_equal_counts_stand_in_the_order_of_their_names():
    assert count_values(pd.Series(["b", "a", None, "c", "c"])) == "c 2, a 1, b 1"


def test_a_model_that_lost_its_accuracy_is_called_broken(published_diagnostics):
    is_chosen = (published_diagnostics.study == "images") & (published_diagnostics.method == "gradient_ascent")
    lost = published_diagnostics.assign(retain_accuracy=np.where(is_chosen, 0.1, 0.9), verdict="erased")
    conditions = gather_conditions(check_results(lost), "images")
    assert set(conditions[conditions.is_broken].method) == {"gradient_ascent"}
    lines = [line for line in describe(lost).splitlines() if "| broken; erased" in line]
    assert lines
    assert all("Gradient Ascent" in line for line in lines)
    without = lost[(lost.method != "original") | (lost.study != "images")]
    assert not gather_conditions(check_results(without), "images").is_broken.any()  # nothing to compare it with
