"""Models and records in, a report with output-level numbers out."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ruler.auditing import AuditSettings
from ruler.auditing.audit import audit
from ruler.auditing.models import audit_models, examine_models
from ruler.auditing.predictions import read_predictions
from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError
from ruler.core.types import Predictions
from ruler.embeddings import embed
from ruler.metrics.outputs import membership_inference

QUICK = AuditSettings(n_permutations=99, n_bootstrap=99)
SIZES = (60, 200, 80)


def build(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 3))


def disturb(model: nn.Module, seed: int, size: float = 0.05) -> nn.Module:
    other = build(0)
    other.load_state_dict(model.state_dict())
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += size * torch.randn_like(parameter)
    return other


@pytest.fixture
def records():
    torch.manual_seed(1)
    rows = torch.randn(sum(SIZES), 6)
    labels = build(0)(rows).detach().argmax(1)
    return dict(
        zip(("forget", "retain", "test"), zip(rows.split(SIZES), labels.split(SIZES), strict=True), strict=True)
    )


@pytest.fixture
def models():
    original = build(0)
    return {"unlearned": disturb(original, 1), "oracle": disturb(original, 2), "original": original}


def test_the_report_is_that_of_the_embeddings(models, records):
    report = audit_models(**models, **records, settings=QUICK)
    rows = {name: tuple(embed(model, part) for part in records.values()) for name, model in models.items()}
    by_hand = audit(rows.pop("unlearned"), **rows, settings=QUICK)
    assert report.metrics == by_hand.metrics
    assert report.verdict == by_hand.verdict
    assert report.guards == by_hand.guards == []
    assert report.provenance["arrays"] == by_hand.provenance["arrays"]


def test_outputs_are_accuracies_and_the_papers_membership_inference(models, records):
    report = audit_models(**models, **records, settings=QUICK)
    assert set(report.outputs) == {"unlearned", "oracle", "original"}
    for name, numbers in report.outputs.items():
        model = models[name].eval()
        with torch.no_grad():
            logits = {side: model(rows).double().numpy() for side, (rows, _) in records.items()}
        labels = {side: part[1].numpy() for side, part in records.items()}
        for side in records:
            assert numbers[f"{side}_accuracy"] == pytest.approx((logits[side].argmax(1) == labels[side]).mean())
        forget, test = (Predictions(logits[side], labels[side]) for side in ("forget", "test"))
        assert numbers["membership_inference"] == pytest.approx(membership_inference(forget, test))


def test_without_test_records_the_control_is_a_placebo(models, records):
    report = audit_models(models["unlearned"], forget=records["forget"], retain=records["retain"], settings=QUICK)
    assert report.metrics["m4"].control == "placebo"
    assert sorted(report.outputs["unlearned"]) == ["forget_accuracy", "retain_accuracy"]


def test_without_labels_there_is_no_output_level(models, records):
    bare = {side: rows for side, (rows, _) in records.items()}
    assert audit_models(**models, **bare, settings=QUICK).outputs == {}


def test_a_layer_can_be_named(models, records):
    named = audit_models(**models, **records, layer="0", settings=QUICK)
    assert named.provenance["arrays"]["unlearned"]["forget"]["shape"] == [60, 24]


def test_models_are_left_as_they_were(models, records):
    models["unlearned"].train()
    models["unlearned"][2].eval()
    audit_models(**models, **records, settings=QUICK)
    assert models["unlearned"].training
    assert not models["unlearned"][2].training


class Drifting(nn.Module):
    """Answers the same within a call of embed, and otherwise the next time."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head, self.n_calls = nn.Linear(6, 16), nn.Linear(16, 3), 0

    def forward(self, x):
        self.n_calls += 1
        has_drifted = self.n_calls > 12  # three sides, each first batch run four times by embed
        return self.head(self.inner(x).relu() + has_drifted)


def test_embeddings_that_change_later_make_the_report_invalid(records):
    report = audit_models(Drifting(), **records, settings=QUICK)
    assert report.verdict == "invalid"
    assert report.guards[0].name == "unstable_embeddings"
    assert "The unlearned model gives other embeddings when asked again" in report.guards[0].message


class Noisy(Drifting):
    def forward(self, x):
        return self.head(self.inner(x) + torch.randn(16))


def test_embeddings_that_change_at_once_are_refused_by_name(models, records):
    with pytest.raises(UnstableModelError, match="oracle model, forget records: model must give the same"):
        audit_models(models["unlearned"], oracle=Noisy(), **records, settings=QUICK)


def test_errors_name_the_model_and_the_side(models, records):
    with pytest.raises(LayerNotFoundError, match="unlearned model, forget records"):
        audit_models(**models, **records, layer="nowhere")
    records["test"] = (torch.full((80, 6), torch.nan), records["test"][1])
    with pytest.raises(InputError, match="unlearned model, held-out records: embeddings must be finite"):
        audit_models(**models, **records)


def test_lost_retain_accuracy_is_said(models, records):
    broken = disturb(models["original"], 5, size=1.0)
    report = audit_models(broken, original=models["original"], **records, settings=QUICK)
    assert "retain_accuracy_lost" in [guard.name for guard in report.guards]
    assert report.verdict != "invalid"


def test_row_numbers_of_two_datasets_are_not_the_same_records(models, records):
    train = TensorDataset(
        torch.cat([records["forget"][0], records["retain"][0]]), torch.cat([records["forget"][1], records["retain"][1]])
    )
    forget, retain = Subset(train, range(1, 60)), Subset(train, range(60, 260))
    test = DataLoader(Subset(TensorDataset(*records["test"]), list(range(5, 80))), batch_size=32)
    report = audit_models(**models, forget=forget, retain=retain, test=test, settings=QUICK)
    assert report.guards == []
    assert report.records["id"].tolist() == list(range(1, 60))


def test_a_record_on_two_sides_of_one_dataset_is_found(models, records):
    whole = TensorDataset(*records["retain"])
    sides = {"forget": Subset(whole, range(5, 60)), "retain": Subset(whole, range(50, 200))}
    report = audit_models(models["unlearned"], **sides, settings=QUICK)
    assert report.verdict == "invalid"
    assert report.guards[0].name == "shared_ids"


def test_groups_travel_with_the_records(models, records):
    sides = {"forget": records["forget"], "retain": records["retain"]}
    report = examine_models({"unlearned": models["unlearned"]}, sides, groups=np.arange(60) // 2, settings=QUICK)
    assert report.groups is not None
    assert len(report.groups) == 30


class Named(Dataset):
    """Records as dicts, with ids and labels."""

    def __init__(self, rows, labels) -> None:
        self.rows, self.labels = rows, labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return {"input": self.rows[row], "label": int(self.labels[row]), "id": f"r{row}"}


@pytest.mark.parametrize("shape", ["tuple", "dataset", "loader", "dict", "items"])
def test_labels_are_found_in_every_kind_of_data(shape, records):
    rows, labels = records["forget"]
    data = {
        "tuple": (rows, labels),
        "dataset": TensorDataset(rows, labels),
        "loader": DataLoader(TensorDataset(rows, labels), batch_size=7),
        "dict": {"input": rows, "labels": labels},
        "items": Named(rows, labels),
    }[shape]
    found = read_predictions(build(0), data)
    assert found is not None
    assert np.array_equal(found.labels, labels.numpy())
    with torch.no_grad():
        assert np.allclose(found.logits, build(0).eval()(rows).numpy())


@pytest.mark.parametrize("labels", [torch.rand(60), torch.zeros(60, 2, dtype=torch.int64), torch.full((60,), 9)])
def test_labels_that_are_no_classes_give_no_outputs(labels, records):
    assert read_predictions(build(0), (records["forget"][0], labels)) is None


def test_a_model_without_a_row_of_logits_gives_no_outputs(records):
    rows, labels = records["forget"]
    assert read_predictions(nn.Linear(6, 1), (rows, labels)) is None
    assert read_predictions(nn.Sequential(nn.Linear(6, 6), nn.Unflatten(1, (2, 3))), (rows, labels)) is None


def test_negative_labels_are_no_classes(records):
    assert read_predictions(build(0), (records["forget"][0], torch.full((60,), -100))) is None
