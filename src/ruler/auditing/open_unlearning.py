"""The audit as a metric of open-unlearning: its signature in, its dictionary out."""

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.auditing.findings import find_worst
from ruler.auditing.models import audit_models
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import InputError
from ruler.core.readers.pretrained import load_pretrained

if TYPE_CHECKING:
    import torch

    from ruler.auditing.findings import Remaining, Report

_SIDES = ("forget", "retain", "held_out")
_COLUMNS = (
    *("remaining", "low", "high", "oracle_similarity", "nearest_similarity", "loss", "loss_gap"),
    *("p_value", "q_value", "finding"),
)
_SHOWN = ("value", "low", "high", "at_least", "at_most", "scale", "contrast", "layer")


def audit_unlearned(model: "torch.nn.Module", **kwargs: Any) -> dict[str, Any]:
    """How much does this model still hold of the records, in the form in which open-unlearning's metrics answer?

    Register it by that tool's decorator, ``unlearning_metric(name="ruler_audit")(audit_unlearned)``. Records are padded
    here, so collators, tokenizer and arguments of generation are not used.

    Args:
        model: The unlearned model.
        **kwargs: As open-unlearning gives them:

            - ``data``: datasets by access key "forget", "retain" and "held_out" (without it there is no verdict). Items
              are dicts with ``input_ids``, ``labels`` (-100 except on the answer) and ``index``.
            - ``oracle``: a model that was never trained on the forget records, the folder of one, or a list of them.
            - ``original``: the model before unlearning, or its folder.
            - ``reference``: another model that never saw the forget or held-out records, such as the checkpoint before
              fine-tuning; its folder, or a list of such.
            - ``metric``: by which contrast ``agg_value`` says what remains, such as "tangent"; by default by what the
              model says.
            - ``group_size``: records per author, which follow each other in a dataset, such as 20 for TOFU.
            - ``layer``, ``batch_size`` and ``settings`` (an `AuditSettings` or a mapping of its fields): as
              `audit_models` takes them.

    Returns:
        ``agg_value``, how much remains, from 0 (never trained on) to 1 (trained on), by what the model says (None if it
        is not known); ``value_by_index``, what the audit says of every forget record, with what remains of it;
        ``outputs`` and ``layers``, each with verdict, reason and what remains; and ``verdict``, ``reason``, ``needs``
        and ``metrics`` of the audit. All of it can be written as JSON.

    Raises:
        InputError: No forget or retain records, or a metric that the audit did not measure.
    """
    data = kwargs.get("data")
    if not isinstance(data, Mapping) or not {"forget", "retain"} <= data.keys():
        found = ", ".join(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
        raise InputError(f"data must be datasets by the access keys forget, retain and held_out; got {found}.")
    records = {side: _read_dataset(data[side]) for side in _SIDES if data.get(side) is not None}
    settings = kwargs.get("settings")
    size, groups = kwargs.get("group_size"), None
    if size is not None:
        groups = {side: [f"{side} {row // int(size)}" for row in range(len(one))] for side, (one, _) in records.items()}
    report = audit_models(
        model,
        oracle=_load(kwargs.get("oracle")),
        original=_load(kwargs.get("original")),
        reference=_load(kwargs.get("reference")),
        forget=records["forget"][1],
        retain=records["retain"][1],
        held_out=records["held_out"][1] if "held_out" in records else None,
        ids={side: [f"{side} {index}" for index in indices] for side, (indices, _) in records.items()},
        groups=groups,
        layer=kwargs.get("layer"),
        batch_size=int(kwargs.get("batch_size", 256)),
        device=next(model.parameters()).device,
        settings=AuditSettings(**settings) if isinstance(settings, Mapping) else settings,
    )
    return _describe(report, records["forget"][0], kwargs.get("metric"))


def _read_dataset(dataset: Any) -> tuple[list[int], list[dict[str, Any]]]:
    """Indices of the items, and what a language model is fed of each."""
    indices, items = [], []
    for row in range(len(dataset)):
        item = dataset[row]
        if not isinstance(item, Mapping) or not {"input_ids", "labels"} <= item.keys():
            raise InputError(f"items of data must have input_ids and labels; got a {type(item).__name__} in row {row}.")
        fed = {name: np.asarray(item[name]) for name in ("input_ids", "labels")}
        items.append({**fed, "attention_mask": np.asarray(item.get("attention_mask", np.ones_like(fed["input_ids"])))})
        indices.append(int(item.get("index", row)))
    return indices, items


def _load(model: Any) -> Any:
    """A model, or several, of which each may be named by its folder."""
    if isinstance(model, str | PathLike):
        return load_pretrained(model, "AutoModelForCausalLM")[0]  # type: ignore[arg-type]
    return [_load(one) for one in model] if isinstance(model, Sequence) else model


def _describe(report: "Report", indices: list[int], metric: str | None) -> dict[str, Any]:
    if metric is not None and metric not in report.metrics:
        raise InputError(f"metric must be one of {', '.join(report.metrics)}; got {metric!r}.")
    asked = report.outputs.remaining if metric is None else find_worst(report.metrics[metric].remaining.values())
    rows = report.records[[name for name in _COLUMNS if name in report.records]].to_dict("records")
    return {
        "agg_value": None if asked is None else _plain(asked.value),
        "value_by_index": {
            index: {name: _plain(value) for name, value in row.items()}
            for index, row in zip(indices, rows, strict=True)
        },
        "verdict": report.verdict,
        "reason": report.reason,
        "needs": list(report.needs),
        **{
            name: {"verdict": one.verdict, "reason": one.reason, "remaining": _show(one.remaining)}
            for name, one in (("outputs", report.outputs), ("layers", report.layers))
        },
        "metrics": {
            name: {
                "remaining": {scale: _show(found) for scale, found in one.remaining.items()},
                "effect": _plain(one.effect),
                "p_value": _plain(one.p_value),
                "verdict": one.verdict,
                "reason": one.reason,
            }
            for name, one in report.metrics.items()
        },
    }


def _show(remaining: "Remaining | None") -> dict[str, Any] | None:
    if remaining is None:
        return None
    return {name: _plain(getattr(remaining, name)) for name in _SHOWN}


def _plain(value: Any) -> Any:
    """A number that JSON knows; None for NaN."""
    if isinstance(value, str) or value is None:
        return value
    return float(value) if math.isfinite(value) else None
