from importlib.util import find_spec

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(not find_spec("lightning"), reason="needs the extra lightning")


@pytest.fixture
def train(tmp_path, records):
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))

        def forward(self, x):
            return self.model(x)

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def run(callbacks):
        module = Module()
        trainer = pl.Trainer(
            max_epochs=3,
            accelerator="cpu",
            callbacks=callbacks,
            logger=CSVLogger(tmp_path, name="", version=f"log-{len(callbacks)}"),
            default_root_dir=tmp_path,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
        )
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(*records["retain"]), batch_size=20, shuffle=True
        )
        trainer.fit(module, loader)
        return module

    return run


@pytest.mark.parametrize("module", ["", "model"])
def test_a_trainer_is_audited_and_trains_as_without(module, train, records, tmp_path):
    from ruler.hooks.lightning import AuditCallback

    callback = AuditCallback(module=module, every_n_epochs=2, keep_original=True, **records)
    trained = train([callback])
    assert list(callback.reports) == [0, 6, 9]  # three batches per epoch
    assert callback.reports[9].given.original
    header, *lines = (tmp_path / "log-1" / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("ruler/m4/effect")
    assert [float(line.split(",")[column]) for line in lines] == [
        report.metrics["m4"].effect for report in callback.reports.values()
    ]

    alone = train([]).state_dict()
    assert all(torch.equal(alone[name], value) for name, value in trained.state_dict().items())
