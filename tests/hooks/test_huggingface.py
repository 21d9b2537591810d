from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(
    not (find_spec("transformers") and find_spec("accelerate")), reason="needs the extra huggingface, and accelerate"
)


class Classifier(nn.Module):
    """As small as a model for a Trainer can be."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.dropout, self.head = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)

    def forward(self, x, labels=None):
        logits = self.head(self.dropout(torch.relu(self.body(x))))
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.fixture
def train(tmp_path, records):
    import transformers

    def run(callbacks):
        args = transformers.TrainingArguments(
            str(tmp_path / "run"),
            num_train_epochs=3,
            per_device_train_batch_size=20,
            learning_rate=0.05,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        )
        x, y = records["retain"]
        data = [{"x": row, "labels": label} for row, label in zip(x, y, strict=True)]
        trainer = transformers.Trainer(Classifier(), args, train_dataset=data, callbacks=callbacks)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return trainer

    return run


def test_the_best_checkpoint_is_audited_although_its_step_was(records):
    from ruler.hooks.huggingface import AuditCallback

    callback = AuditCallback(**records)
    state = SimpleNamespace(is_world_process_zero=True, global_step=9, epoch=3.0, log_history=[])
    for is_best in (False, False, True):
        callback.on_train_end(SimpleNamespace(load_best_model_at_end=is_best), state, None, model=Classifier())
    assert [line["step"] for line in state.log_history] == [9, 9]


def test_a_trainer_is_audited_and_trains_as_without(train, records, tmp_path):
    from ruler.hooks.huggingface import AuditCallback

    callback = AuditCallback(every_n_epochs=2, keep_original=True, folder=tmp_path / "reports", **records)
    trainer = train([callback])
    assert list(callback.reports) == [0, 6, 9]  # three batches per epoch
    logged = [line for line in trainer.state.log_history if "ruler/m4/effect" in line]
    assert [(line["step"], line["epoch"]) for line in logged] == [(0, 0), (6, 2.0), (9, 3.0)]
    assert logged[-1]["ruler/m4/effect"] == callback.reports[9].metrics["m4"].effect
    assert callback.reports[9].given.original
    assert (tmp_path / "reports" / "step-9" / "report.html").is_file()

    alone = train([]).model.state_dict()
    assert all(torch.equal(alone[name], value) for name, value in trainer.model.state_dict().items())
