"""Models and records in, a report with output-level numbers out."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.auditing.cases import QUICK
from tests.embeddings.bundle.language import build as build_writer
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from ruler.auditing.audit import audit
from ruler.auditing.models import audit_models, hash_weights
from ruler.core.errors import InputError, LayerNotFoundError, UnstableModelError
from ruler.core.types import Predictions
from ruler.embeddings import embed
from ruler.metrics.outputs import membership_inference

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
        zip(("forget", "retain", "held_out"), zip(rows.split(SIZES), labels.split(SIZES), strict=True), strict=True)
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


def test_answers_are_accuracies_and_the_papers_membership_inference(models, records):
    report = audit_models(**models, **records, settings=QUICK)
    assert set(report.answers) == {"unlearned", "oracle", "original"}
    for name, numbers in report.answers.items():
        model = models[name].eval()
        with torch.no_grad():
            logits = {side: model(rows).double().numpy() for side, (rows, _) in records.items()}
        labels = {side: part[1].numpy() for side, part in records.items()}
        for side in records:
            assert numbers[f"{side}_accuracy"] == pytest.approx((logits[side].argmax(1) == labels[side]).mean())
        forget, held_out = (Predictions(logits[side], labels[side]) for side in ("forget", "held_out"))
        assert numbers["membership_inference"] == pytest.approx(membership_inference(forget, held_out))


def test_without_held_out_records_there_is_no_test(models, records):
    report = audit_models(models["unlearned"], forget=records["forget"], retain=records["retain"], settings=QUICK)
    assert report.verdict == "inconclusive"
    assert sorted(report.answers["unlearned"]) == ["forget_accuracy", "retain_accuracy"]


def test_the_former_name_of_held_out_records_is_refused(models, records):
    with pytest.raises(InputError, match=r"held_out must name the records .*; got test\. Write held_out="):
        audit_models(models["unlearned"], forget=records["forget"], retain=records["retain"], test=records["held_out"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'tests'"):
        audit_models(models["unlearned"], forget=records["forget"], retain=records["retain"], tests=1)


def test_without_labels_there_is_no_output_level(models, records):
    bare = {side: rows for side, (rows, _) in records.items()}
    report = audit_models(**models, **bare, settings=QUICK)
    assert report.answers == {}
    assert "loss" not in report.metrics
    note = next(guard for guard in report.guards if guard.name == "losses_unknown")
    assert note.severity == "note"
    assert note.message == "Losses were not compared: The data carries no labels (unlearned model, forget records)."


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
        has_drifted = self.n_calls > 9  # three sides, each first batch run three times to read it
        return self.head(self.inner(x).relu() + has_drifted)


def test_embeddings_that_change_later_make_the_report_invalid(records):
    report = audit_models(Drifting(), **records, settings=QUICK)
    assert report.verdict == "invalid"
    assert report.guards[0].name == "unstable_embeddings"
    assert "The unlearned model gives different embeddings for the same records" in report.guards[0].message


class Noisy(Drifting):
    def forward(self, x):
        return self.head(self.inner(x) + torch.randn(16))


def test_embeddings_that_change_at_once_are_refused_by_name(models, records):
    with pytest.raises(UnstableModelError, match="oracle model, forget records: model must give the same"):
        audit_models(models["unlearned"], oracle=Noisy(), **records, settings=QUICK)


def test_errors_name_the_model_and_the_side(models, records):
    with pytest.raises(LayerNotFoundError, match="unlearned model, forget records"):
        audit_models(**models, **records, layer="nowhere")
    records["held_out"] = (torch.full((80, 6), torch.nan), records["held_out"][1])
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
    held_out = DataLoader(Subset(TensorDataset(*records["held_out"]), list(range(5, 80))), batch_size=32)
    report = audit_models(**models, forget=forget, retain=retain, held_out=held_out, settings=QUICK)
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
    report = audit_models(models["unlearned"], **sides, groups=np.arange(60) // 2, settings=QUICK)
    assert report.groups is not None
    assert len(report.groups) == 30


def test_labels_travel_with_the_records(models, records):
    matched = replace(QUICK, match_labels=True)
    report = audit_models(models["unlearned"], **records, settings=matched)
    rows = [replace(embed(models["unlearned"], part), labels=part[1].numpy()) for part in records.values()]
    assert report.metrics["m4"] == audit(tuple(rows), settings=matched).metrics["m4"]
    assert report.metrics["m4"] != audit(tuple(rows), settings=QUICK).metrics["m4"]


@pytest.mark.parametrize("layer", [["0", "3", "5:input"], "all"])
def test_several_layers_are_read_in_one_pass(models, records, layer):
    calls = []
    del models["original"]
    models["unlearned"].register_forward_hook(lambda _, args, output: calls.append(len(output)))
    report = audit_models(**models, **records, layer=layer, settings=QUICK)
    names = [one.layer for one in report.metrics["m4"].layers]
    assert names == (["0", "3", "5:input"] if layer != "all" else ["0", "1", "3", "5:input"])
    assert report.provenance["layers"] == names
    # every side once, and once more for stability; the forget records also to ask again; the rest to find the layers
    assert sum(calls) <= 2 * sum(SIZES) + 2 * 60 + 2 * sum(SIZES) + 60


def test_losses_are_compared_where_there_are_labels(models, records):
    report = audit_models(**models, **records, settings=QUICK)
    rows, labels = records["forget"]
    with torch.no_grad():
        own, others = (
            nn.functional.cross_entropy(models[name].eval()(rows).double(), labels, reduction="none")
            for name in ("unlearned", "oracle")
        )
    assert report.metrics["loss"].value == pytest.approx(float((own - others).mean()), rel=1e-4)
    assert report.provenance["loss"] == "cross-entropy"


def test_one_side_without_labels_leaves_the_losses_out(models, records):
    records["held_out"] = records["held_out"][0]
    report = audit_models(**models, **records, settings=QUICK)
    assert "loss" not in report.metrics
    assert sorted(report.answers["unlearned"]) == ["forget_accuracy", "retain_accuracy"]
    note = next(guard for guard in report.guards if guard.name == "losses_unknown")
    assert "(unlearned model, held-out records)" in note.message


def test_sides_agree_on_the_loss(records):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    targets = {"forget": torch.zeros(60), "retain": torch.rand(200), "held_out": torch.ones(80)}
    data = {side: (rows, targets[side]) for side, (rows, _) in records.items()}
    report = audit_models(model, **data, settings=QUICK)
    assert report.provenance["loss"] == "squared error"  # zeros and ones alone would be classes


def test_several_oracles(models, records):
    oracles = [disturb(models["original"], seed) for seed in (2, 3, 4)]
    report = audit_models(models["unlearned"], oracle=oracles, **records, settings=QUICK)
    assert set(report.answers) == {"unlearned", "oracle", "oracle 2", "oracle 3"}
    assert list(report.provenance["models"]) == ["unlearned", "oracle", "oracle 2", "oracle 3"]
    with pytest.raises(InputError, match="oracle must be a model or a list of at least one; got an empty list"):
        audit_models(models["unlearned"], oracle=[], **records)


def test_references_are_read_like_oracles(models, records):
    references = [disturb(models["original"], seed, 0.3) for seed in (7, 8)]
    report = audit_models(models["unlearned"], reference=references, **records, settings=QUICK)
    rows = [tuple(embed(model, part) for part in records.values()) for model in (models["unlearned"], *references)]
    by_hand = audit(rows[0], reference=rows[1:], settings=QUICK)
    assert report.metrics == by_hand.metrics
    assert report.given.reference == 2
    assert set(report.answers) == {"unlearned", "reference", "reference 2"}
    assert list(report.provenance["models"]) == ["unlearned", "reference", "reference 2"]
    with pytest.raises(InputError, match="reference must be a model or a list of at least one; got an empty list"):
        audit_models(models["unlearned"], reference=[], **records)


def test_of_a_reference_without_the_layer_only_the_losses_are_used(models, records):
    torch.manual_seed(9)
    small = nn.Linear(6, 3)
    report = audit_models(models["unlearned"], reference=small, **records, layer="3", settings=QUICK)
    rows = tuple(embed(models["unlearned"], part, layer="3") for part in records.values())
    losses = tuple(embed(small, part).losses for part in records.values())
    assert report.metrics == audit(rows, reference=losses, settings=QUICK).metrics
    assert report.metrics["loss"] != audit(rows, settings=QUICK).metrics["loss"]
    bare = {side: part[0] for side, part in records.items()}
    with pytest.raises(InputError, match="reference must have the layers 3 or losses; got neither"):
        audit_models(models["unlearned"], reference=small, **bare, layer="3")


def test_losses_that_only_a_reference_lacks_stay_in_the_audit(models, records):
    torch.manual_seed(9)
    silent = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))  # three classes are labelled
    report = audit_models(models["unlearned"], reference=silent, **records, settings=QUICK)
    assert "loss" in report.metrics
    note = next(guard for guard in report.guards if guard.name == "losses_unknown")
    assert note.message.startswith(
        "The losses of reference were not used: For 2 outputs, labels must be classes 0 to 1"
    )


def test_what_is_declared_is_in_the_report(models, records):
    declared = {"run_by": "the controller"}
    report = audit_models(models["unlearned"], **records, declared=declared, settings=QUICK)
    assert report.declared == declared


@pytest.mark.parametrize(("kind", "shift"), [("gpt2", 1), ("t5", 0)])
def test_accuracy_on_tokens_is_an_answer_of_language_models(kind, shift):
    model, generator, sides = build_writer(kind), torch.Generator().manual_seed(0), {}
    for side in ("forget", "retain", "held_out"):
        tokens = torch.randint(6, 60, (20, 6), generator=generator)
        labels = tokens.clone()
        labels[:, :3] = -100
        sides[side] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
    own = sides["retain"]
    with torch.no_grad():
        own["labels"][:8, 5] = model(**own).logits[:8, 5 - shift].argmax(dim=1)  # the last token as it would write it
        logits = model(**own).logits
    right = logits[:, 3 - shift : 6 - shift].argmax(dim=2) == own["labels"][:, 3:]
    report = audit_models(model, **sides, settings=QUICK)
    assert right.double().mean() >= 8 / 60
    assert report.answers["unlearned"]["retain_accuracy"] == pytest.approx(float(right.double().mean()))


def test_ids_name_the_forget_records(models, records):
    names = [f"p{row}" for row in range(60)]
    report = audit_models(models["unlearned"], **records, ids=names, settings=QUICK)
    assert sorted(report.records["id"]) == sorted(names)


def test_provenance_says_what_was_read(models, records):
    report = audit_models(**models, **records, settings=QUICK)
    assert report.provenance["layers"] == ["5:input"]
    assert report.provenance["pooling"] == "one vector per record as it is"
    assert report.provenance["torch"] == torch.__version__
    assert report.provenance["models"]["oracle"] == "torch.nn.modules.container.Sequential"
    assert report.provenance["weights"]["oracle"] == hash_weights(models["oracle"])


def test_weights_are_hashed_as_they_are_stored():
    layer = nn.Linear(2, 2)
    state = {name: value.numpy() for name, value in layer.state_dict().items()}
    assert hash_weights(layer) == hashlib.sha256(state["bias"].tobytes() + state["weight"].tobytes()).hexdigest()
    before = hash_weights(layer.bfloat16())
    assert hash_weights(nn.Sequential(layer)) == before
    with torch.no_grad():
        layer.weight[0, 0] += 1
    assert hash_weights(layer) != before


def test_what_is_no_tensor_is_not_hashed():
    class Counted(nn.Linear):
        def get_extra_state(self):
            return {"steps": 3}

        def set_extra_state(self, state):
            pass

    torch.manual_seed(0)
    counted, plain = Counted(3, 2), nn.Linear(3, 2)
    plain.load_state_dict({name: value for name, value in counted.state_dict().items() if "extra" not in name})
    assert len(counted.state_dict()) == 3
    assert hash_weights(counted) == hash_weights(plain)
