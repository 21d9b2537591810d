"""Audits during unlearning with a Hugging Face `Trainer`."""

from os import PathLike
from typing import Any

from ruler.auditing.findings import Report
from ruler.core.optional import load_optional
from ruler.hooks.steps import OnReport, StepAudits

load_optional("transformers", "auditing with a Trainer")

from transformers import TrainerCallback  # noqa: E402  the line above names the extra if it is missing


class AuditCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Has the model forgotten, before training, on the way and at the end? For ``Trainer(callbacks=[...])``.

    Numbers go to ``trainer.state.log_history`` under names such as ``ruler/m2/effect``, reports to `reports`. Only the
    first process audits; the model must be whole there, so not sharded (FSDP, ZeRO 3). Training is not changed by it.

    Args:
        every_n_epochs: Audit after each n-th epoch; None only before and after training.
        at_start: Audit before training, too, so that a mistake in the arguments shows at once.
        keep_original: Copy the model before training and use it as the original.
        folder: Save each report in ``step-N`` of it.
        on_report: Called as ``on_report(report, step=step)``, such as ``ruler.hooks.mlflow.log_report``.
        **given: What `ruler.audit_models` takes beside the model: forget, retain, held_out, oracle, settings, ...

    Raises:
        InputError: Arguments that `ruler.audit_models` does not take, or no forget or retain records.
    """

    def __init__(
        self,
        *,
        every_n_epochs: int | None = None,
        at_start: bool = True,
        keep_original: bool = False,
        folder: str | PathLike[str] | None = None,
        on_report: OnReport | None = None,
        **given: Any,
    ) -> None:
        self._audits = StepAudits(
            given,
            every_n_epochs=every_n_epochs,
            at_start=at_start,
            keep_original=keep_original,
            folder=folder,
            on_report=on_report,
        )

    @property
    def reports(self) -> dict[int, Report]:
        """Reports by training step."""
        return self._audits.reports

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Keep the original and audit, as asked for."""
        if state.is_world_process_zero:
            self._note(state, self._audits.begin(model, state.global_step))

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Audit after every n-th epoch."""
        if state.is_world_process_zero and self._audits.is_due(round(state.epoch)):
            self._note(state, self._audits.audit(model, state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Audit what came out, which may be the best checkpoint rather than the last step."""
        if state.is_world_process_zero:
            is_replaced = args.load_best_model_at_end
            self._note(state, self._audits.audit(model, state.global_step, is_replaced=is_replaced))

    def _note(self, state: Any, numbers: dict[str, float]) -> None:
        if numbers:
            state.log_history.append({**numbers, "epoch": state.epoch or 0, "step": state.global_step})
