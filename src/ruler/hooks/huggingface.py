"""Audits during unlearning with a Hugging Face `Trainer`."""

from typing import Any

from ruler.core.optional import load_optional
from ruler.hooks.steps import StepAudits

load_optional("transformers", "auditing with a Trainer")

from transformers import TrainerCallback  # noqa: E402  the line above names the extra if it is missing


class AuditCallback(StepAudits, TrainerCallback):  # type: ignore[misc,unused-ignore]
    """How much does the model hold, before training, on the way and at the end? For ``Trainer(callbacks=[...])``.

    Numbers go to ``trainer.state.log_history`` under names such as ``ruler/remaining/value``, reports by training step
    to `reports`. Only the first process audits. The model must be whole there, so not sharded (FSDP, ZeRO 3). Training
    is not changed by it.

    Args:
        module: Name of the submodule to audit; by default the whole model.
        every_n_epochs: Audit after each n-th epoch; None only before and after training.
        at_start: Audit before training, too, so that a mistake in the arguments shows at once.
        keep_original: Copy the model before training and use it as the original.
        folder: Save each report in ``step-N`` of it.
        on_report: Called as ``on_report(report, step=step)``, such as ``ruler.hooks.mlflow.log_report``.
        **given: What `ruler.audit_models` takes beside the model: forget, retain, held_out, oracle, reference, ...

    Raises:
        InputError: Arguments that `ruler.audit_models` does not take, or no forget or retain records.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Keep the original and audit, as asked for."""
        if state.is_world_process_zero:
            self._note(state, self.begin(model, state.global_step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Audit after every n-th epoch."""
        if state.is_world_process_zero and self.is_due(round(state.epoch)):
            self._note(state, self.audit(model, state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Audit what came out, which may be the best checkpoint rather than the last step."""
        if state.is_world_process_zero:
            numbers = self.audit(model, state.global_step, is_replaced=args.load_best_model_at_end)
            self._note(state, numbers)

    def _note(self, state: Any, numbers: dict[str, float]) -> None:
        if numbers:
            state.log_history.append({**numbers, "epoch": state.epoch or 0, "step": state.global_step})
