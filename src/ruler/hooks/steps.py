"""Audits of a model while it is trained: what the callbacks of all trainers share."""

import copy
import difflib
import inspect
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ruler.auditing.findings import Report
from ruler.auditing.models import audit_models
from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.hooks.numbers import list_numbers

if TYPE_CHECKING:
    import torch

_TAKEN = {name for name in inspect.signature(audit_models).parameters if name not in ("unlearned", "removed")}


class OnReport(Protocol):
    """Takes every report as it is made, such as ``ruler.hooks.mlflow.log_report``."""

    def __call__(self, report: Report, *, step: int) -> object:
        """Do something with it."""


class StepAudits:
    """Audits of one model at several steps of its training; the callbacks document the arguments.

    Attributes:
        reports: By the number of training steps done.

    Raises:
        InputError: An argument that `audit_models` does not take, or one that is missing.
    """

    def __init__(
        self,
        *,
        module: str = "",
        every_n_epochs: int | None = None,
        at_start: bool = True,
        keep_original: bool = False,
        folder: str | PathLike[str] | None = None,
        on_report: OnReport | None = None,
        **given: Any,
    ) -> None:
        for name in given:
            if name not in _TAKEN:
                near = difflib.get_close_matches(name, _TAKEN, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"It takes {', '.join(sorted(_TAKEN))}."
                raise InputError(f"arguments must be those of ruler.audit_models; got {name}. {hint}")
        for name in ("forget", "retain"):
            if given.get(name) is None:
                raise InputError(f"{name} must be the {name} records; got none. Give {name}=.")
        if every_n_epochs is not None:
            check_number(every_n_epochs, "every_n_epochs", minimum=1, is_whole=True)
        if keep_original and given.get("original") is not None:
            raise InputError("keep_original must be False where original is given; got both. Leave one of them out.")
        self.given = given
        self.module = module
        self.every_n_epochs = every_n_epochs
        self.at_start = at_start
        self.keep_original = keep_original
        self.folder = None if folder is None else Path(folder)
        self.on_report = on_report
        self.reports: dict[int, Report] = {}

    def begin(self, model: "torch.nn.Module", step: int, *, leave_out: object = None) -> dict[str, float]:
        """Before training: keep the original and audit, as asked for; the numbers of that audit, if there was one.

        Args:
            model: To be trained.
            step: Steps that were done already.
            leave_out: Something that the model refers to and its copy must not.

        Raises:
            InputError: The original is to be kept, but training resumes, so that it is gone.
        """
        if self.keep_original and step:
            raise InputError(f"keep_original must be False where training resumes; got step {step}. Give original=.")
        if self.keep_original:
            kept = copy.deepcopy(model.get_submodule(self.module), {} if leave_out is None else {id(leave_out): None})
            self.given["original"] = kept.requires_grad_(False)
        self.reports.clear()  # of an earlier training, which counted its own steps
        return self.audit(model, step) if self.at_start else {}

    def is_due(self, n_epochs: int) -> bool:
        """Whether the model is to be audited after so many epochs."""
        return self.every_n_epochs is not None and n_epochs > 0 and n_epochs % self.every_n_epochs == 0

    def audit(self, model: "torch.nn.Module", step: int, *, is_replaced: bool = False) -> dict[str, float]:
        """Audit the model, keep, save and hand on the report; its numbers, or none if this step was audited before.

        Args:
            model: As it is now.
            step: Training steps done.
            is_replaced: Its weights may be others than at this step, so that an earlier report does not count.
        """
        if step in self.reports and not is_replaced:
            return {}
        report = self.reports[step] = audit_models(model.get_submodule(self.module), **self.given)
        if self.folder is not None:
            report.save(self.folder / f"step-{step}")
        if self.on_report is not None:
            self.on_report(report, step=step)
        return list_numbers(report)
