import dataclasses
from importlib.util import find_spec

import numpy as np
import pytest

import ruler
from ruler.auditing.report import words
from ruler.core.errors import InputError
from ruler.hooks.model_card import list_results, render_section, update_card

needs_hub = pytest.mark.skipif(not find_spec("huggingface_hub"), reason="needs the extra huggingface")


def test_the_section_says_the_verdict_its_limits_and_every_contrast(erased):
    section = render_section(erased, heading="Has it forgotten?")
    assert section.startswith("## Has it forgotten?\n\n**Erased.** ")
    assert "It is a measurement, not a legal finding." in section
    assert words.format_remaining(erased.remaining).replace("[", r"\[").replace("]", r"\]") in section
    assert [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")] == [
        "| contrast",
        "| ---",
        "| Loss",
        "| Tangent",
        "| M1 oracle similarity",
        "| M2 calibration gap",
        "| M3 representation shift",
        "| M4 percentile rank",
        "| Norm",
    ]
    assert "250 forget records were audited" in section


def test_what_would_settle_it_is_listed(rows):
    report = ruler.audit(tuple(np.split(rows, [50])))  # no held-out records
    assert report.needs
    assert f"1. {report.needs[0]}" in render_section(report)


def test_no_record_is_named(rows):
    forget, retain, held_out = np.split(rows, [50, 150])
    names = {"forget": [f"patient{n}" for n in range(50)], "retain": [f"patient{n}" for n in range(100)]}
    report = ruler.audit((forget, retain, held_out), ids=names)
    assert "patient" in report.reason  # ids on two sides fail a guard, which names one
    section = render_section(report)
    assert "patient" not in section
    assert "shared\\_ids (fail)" in section


def test_text_from_outside_stays_text(report):
    odd = dataclasses.replace(report, reason="<script> [x](y) | *z*\n# w")
    assert r"\<script\> \[x\](y) \| \*z\* \# w" in render_section(odd)


@needs_hub
def test_results_are_those_of_the_report(report):
    found = {one.metric_type: one.metric_value for one in list_results(report)}
    assert found["ruler-verdict"] == report.verdict
    assert found["ruler-m4-auc"] == pytest.approx(report.metrics["m4"].effect, abs=1e-6)


@needs_hub
def test_what_remains_is_among_the_results(residual):
    found = {one.metric_type: one.metric_value for one in list_results(residual)}
    assert found["ruler-remaining"] == pytest.approx(residual.remaining.value, abs=1e-6)
    assert found["ruler-remaining-low"] == pytest.approx(residual.remaining.low, abs=1e-6)
    assert found["ruler-remaining-layers"] == pytest.approx(residual.layers.remaining.value, abs=1e-6)
    assert found["ruler-remaining-outputs"] == pytest.approx(residual.outputs.remaining.value, abs=1e-6)


@needs_hub
def test_a_card_keeps_its_text_and_results_and_only_the_latest_audit(report, erased, tmp_path):
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    theirs = EvalResult("text-classification", "mnli", "MNLI", "accuracy", 0.9)
    data = ModelCardData(license="mit", model_name="tiny", eval_results=[theirs], tags=["small"])
    path = tmp_path / "README.md"
    path.write_text(f"---\n{data}\n---\n# Tiny\n\nIts story.\n", encoding="utf-8")
    assert update_card(report, tmp_path) == path
    update_card(erased, path)
    card = ModelCard.load(path)
    assert (card.data.license, card.data.model_name, card.data.tags) == ("mit", "tiny", ["small", "machine-unlearning"])
    values = {one.metric_type: one.metric_value for one in card.data.eval_results}
    assert (values["accuracy"], values["ruler-verdict"]) == (0.9, "erased")
    assert "# Tiny\n\nIts story.\n" in card.text
    assert card.text.count("## Unlearning audit") == 1
    assert "**Erased.**" in card.text


@needs_hub
def test_a_card_is_made_where_there_is_none(erased, tmp_path):
    from huggingface_hub import ModelCard

    card = ModelCard.load(update_card(erased, tmp_path))
    assert card.data.model_name == tmp_path.name
    assert card.data.eval_results[0].dataset_name == "Forget records"


@needs_hub
def test_a_broken_card_is_left_alone(erased, tmp_path):
    path = tmp_path / "README.md"
    path.write_text("---\n[not, a, mapping]\n---\nText\n")
    with pytest.raises(InputError, match=r"README.md must be a model card with sound metadata; got: .* Repair"):
        update_card(erased, path)
    assert path.read_text().endswith("Text\n")
