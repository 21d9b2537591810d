"""From models and records to a verdict: `audit_models`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.audit import audit_evidence
from ruler.auditing.evidence import SIDES, Side
from ruler.auditing.findings import GuardFinding, Report
from ruler.auditing.gather import gather_evidence
from ruler.auditing.guards.models import check_retain_accuracy, check_stability
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import RulerError
from ruler.core.optional import load_optional
from ruler.core.types import Embeddings
from ruler.embeddings import embed
from ruler.metrics.outputs import accuracy, membership_inference

if TYPE_CHECKING:
    import torch

    from ruler.core.types import Predictions

Records = Mapping[Side, Any]
"""Data of each side, as `embed` takes it."""


def audit_models(
    unlearned: "torch.nn.Module",
    *,
    oracle: "torch.nn.Module | None" = None,
    original: "torch.nn.Module | None" = None,
    forget: Any,
    retain: Any,
    test: Any = None,
    layer: str | None = None,
    settings: AuditSettings | None = None,
) -> Report:
    """Has this model forgotten these records, in its representations and at its outputs?

    Embeds the records with each model, then audits. Where the data carries labels, the report also holds accuracies and
    the paper's membership inference, and lost retain accuracy is said. Models are asked twice for the forget records:
    answers that differ make the report invalid.

    Args:
        unlearned: The model after unlearning, torch or Hugging Face.
        oracle: The same architecture, never trained on the forget records.
        original: The model before unlearning.
        forget: Records to be forgotten, as `embed` takes them: arrays, a pair (X, y), a Dataset, a DataLoader.
        retain: Records that were to be kept.
        test: Records no model was trained on: the held-out control.
        layer: Where to read, as `embed`; None finds the input of the task head.
        settings: Of the audit.

    Returns:
        The report, with `outputs` where the data carries classes 0..n_classes-1 as labels.

    Raises:
        InputError: Data that cannot be fed, embeddings that are not finite or do not fit together.
        LayerNotFoundError: No such layer, or no task head.
        UnstableModelError: A model that embeds the same batch differently each time.
        MissingPackageError: torch is not installed.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> records = torch.randn(160, 4), torch.randint(2, (160,))
        >>> forget, retain, test = (tuple(part[rows] for part in records) for rows in torch.arange(160).split(60))
        >>> report = audit_models(model, forget=forget, retain=retain, test=test)
        >>> sorted(report.metrics), sorted(report.outputs["unlearned"])
        (['m4'], ['forget_accuracy', 'membership_inference', 'retain_accuracy', 'test_accuracy'])
    """
    given = {"unlearned": unlearned, "oracle": oracle, "original": original}
    records: dict[Side, Any] = {"forget": forget, "retain": retain}
    if test is not None:
        records["held_out"] = test
    models = {name: model for name, model in given.items() if model is not None}
    return examine_models(models, records, layer=layer, settings=settings)


def examine_models(
    models: "Mapping[str, torch.nn.Module]",
    records: Records,
    *,
    layer: str | None = None,
    groups: Any = None,
    settings: AuditSettings | None = None,
    progress: bool = False,
) -> Report:
    """`audit_models` for models and records by name, with groups and a progress bar."""
    load_optional("torch", "auditing a model")
    rows = {
        name: tuple(_embed(model, name, side, records, layer, progress) for side in SIDES if side in records)
        for name, model in models.items()
    }
    unstable = [
        finding
        for name, model in models.items()
        for finding in check_stability(
            rows[name][0].values, _embed(model, name, "forget", records, layer, progress).values, name
        )
    ]
    evidence = gather_evidence(**rows, ids=_name_apart(records, rows["unlearned"]), groups=groups, settings=settings)
    outputs = {name: _measure_outputs(model, records) for name, model in models.items()}
    outputs = {name: numbers for name, numbers in outputs.items() if numbers}
    found: list[GuardFinding] = [*unstable, *check_retain_accuracy(outputs, len(evidence.ids["retain"]))]
    return audit_evidence(evidence, extra_guards=found, outputs=outputs)


def _embed(
    model: "torch.nn.Module", name: str, side: Side, records: Records, layer: str | None, progress: bool
) -> Embeddings:
    try:
        return embed(model, records[side], layer=layer, progress=progress)
    except RulerError as error:
        raise type(error)(f"{name} model, {side.replace('_', '-')} records: {error}") from error


def _measure_outputs(model: "torch.nn.Module", records: Records) -> dict[str, float]:
    from ruler.auditing.predictions import read_predictions

    found: dict[str, Predictions] = {}
    for side, data in records.items():
        answers = read_predictions(model, data)
        if answers is not None:
            found["test" if side == "held_out" else side] = answers
    numbers = {f"{side}_accuracy": accuracy(answers) for side, answers in found.items()}
    if {"forget", "test"} <= found.keys():
        numbers["membership_inference"] = membership_inference(found["forget"], found["test"])
    return numbers


def _name_apart(records: Records, rows: tuple[Embeddings, ...]) -> dict[Side, npt.NDArray[Any]]:
    """Names for sides whose ids count the rows of another dataset than the first side's: equal numbers mean nothing."""
    datasets = {side: _numbered_dataset(records[side], part.ids) for side, part in zip(records, rows, strict=True)}
    reference = next((dataset for dataset in datasets.values() if dataset is not None), None)
    return {
        side: np.array([f"{'test' if side == 'held_out' else side} {row}" for row in part.ids.tolist()])
        for (side, dataset), part in zip(datasets.items(), rows, strict=True)
        if dataset is not None and dataset is not reference
    }


def _numbered_dataset(data: Any, ids: npt.NDArray[Any]) -> Any:
    """The whole dataset whose rows a `Subset` without named records counts; None for other data."""
    is_subset = False
    while hasattr(data, "dataset"):
        is_subset = is_subset or hasattr(data, "indices")
        data = data.dataset
    return data if is_subset and ids.dtype.kind in "iu" and getattr(data, "ids", None) is None else None
