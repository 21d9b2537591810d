"""Audits during unlearning with Lightning."""

from typing import Any

from ruler.core.optional import load_optional
from ruler.hooks.steps import StepAudits

load_optional("lightning", "auditing with Lightning")

from lightning.pytorch import Callback  # noqa: E402  the line above names the extra if it is missing


class AuditCallback(StepAudits, Callback):  # type: ignore[misc,unused-ignore]
    """How much does the model hold, before training, on the way and at the end? For ``Trainer(callbacks=[...])``.

    Numbers go to the trainer's loggers under names such as ``ruler/remaining/value``, reports by training step to
    `reports`. Only the first process audits. The model must be whole there, so not sharded. Training is not changed by
    it.

    Args:
        module: Name of the submodule to audit, such as ``"model"``; by default the LightningModule, by its ``forward``.
        every_n_epochs: Audit after each n-th epoch; None only before and after training.
        at_start: Audit before training, too, so that a mistake in the arguments shows at once.
        keep_original: Copy the model before training and use it as the original.
        folder: Save each report in ``step-N`` of it.
        on_report: Called as ``on_report(report, step=step)``, such as ``ruler.hooks.mlflow.log_report``.
        **given: What `ruler.audit_models` takes beside the model: forget, retain, held_out, oracle, reference, ...

    Raises:
        InputError: Arguments that `ruler.audit_models` does not take, or no forget or retain records.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Keep the original and audit, as asked for."""
        if trainer.is_global_zero:
            self._log(trainer, self.begin(pl_module, trainer.global_step, leave_out=trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Audit after every n-th epoch."""
        if trainer.is_global_zero and self.is_due(trainer.current_epoch + 1):
            self._log(trainer, self.audit(pl_module, trainer.global_step))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Audit what came out."""
        if trainer.is_global_zero:
            self._log(trainer, self.audit(pl_module, trainer.global_step))

    def _log(self, trainer: Any, numbers: dict[str, float]) -> None:
        for logger in trainer.loggers if numbers else ():
            logger.log_metrics(numbers, step=trainer.global_step)
