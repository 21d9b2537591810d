import pytest
import torch
from torch import nn

from ruler.core.errors import InputError
from ruler.hooks.steps import StepAudits


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_step_is_audited_once_and_its_report_kept_saved_and_handed_on(model, records, tmp_path):
    seen = []
    audits = StepAudits(
        folder=tmp_path, on_report=lambda report, *, step: seen.append((step, report)), every_n_epochs=2, **records
    )
    numbers = audits.begin(model, 0)
    assert numbers["ruler/unlearned/forget_accuracy"] == audits.reports[0].answers["unlearned"]["forget_accuracy"]
    assert audits.audit(model, 5)
    assert audits.audit(model, 5) == {}
    first = audits.reports[5]
    assert seen == list(audits.reports.items())
    assert audits.audit(model, 5, is_replaced=True)
    assert audits.reports[5] is not first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0", "step-5"]
    assert [audits.is_due(n) for n in range(5)] == [False, False, True, False, True]
    assert not StepAudits(**records).is_due(1)


def test_the_kept_original_is_the_model_before_training(model, records):
    audits = StepAudits(**records, keep_original=True, at_start=False)
    before = model[2].weight.detach().clone()
    assert audits.begin(model, 0) == {}
    with torch.no_grad():
        model[2].weight.add_(1.0)
    audits.audit(model, 3)
    assert torch.equal(audits.given["original"][2].weight, before)
    assert audits.reports[3].given.original


def test_a_second_training_counts_its_own_steps(model, records):
    audits = StepAudits(**records)
    audits.begin(model, 0)
    assert audits.begin(model, 0) != {}


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ({"forgets": 1}, {}, r"must be those of ruler.audit_models; got forgets. Did you mean forget\?"),
        ({"xyzzy": 1}, {}, r"got xyzzy. It takes .*held_out"),
        ({"retain": None}, {}, r"retain must be the retain records; got none. Give retain=."),
        ({}, {"every_n_epochs": 0}, r"every_n_epochs must be a whole number of at least 1; got 0"),
        ({"original": nn.Flatten()}, {"keep_original": True}, r"keep_original must be False where original is given"),
    ],
)
def test_mistakes_show_before_the_training(records, given, options, words):
    with pytest.raises(InputError, match=words):
        StepAudits(**{**records, **given}, **options)


def test_an_original_that_is_gone_cannot_be_kept(model, records):
    with pytest.raises(InputError, match=r"keep_original must be False where training resumes; got step 7"):
        StepAudits(**records, keep_original=True).begin(model, 7)
