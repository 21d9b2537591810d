"""The audit as a metric of open-unlearning: its signature in, its dictionary out."""

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.auditing.models import audit_models
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import InputError
from ruler.core.readers.pretrained import load_pretrained

if TYPE_CHECKING:
    import torch

    from ruler.auditing.findings import Report

_SIDES = ("forget", "retain", "held_out")
_COLUMNS = ("oracle_similarity", "nearest_similarity", "loss", "loss_gap", "p_value", "q_value", "finding")


def audit_unlearned(model: "torch.nn.Module", **kwargs: Any) -> dict[str, Any]:
    """Has this model forgotten the records, in the form in which open-unlearning's metrics answer?

    Register it by that tool's decorator, ``unlearning_metric(name="ruler_audit")(audit_unlearned)``. Records are padded
    here, so collators, tokenizer and arguments of generation are not used.

    Args:
        model: The unlearned model.
        **kwargs: As open-unlearning gives them:

            - ``data``: datasets by access key "forget", "retain" and "held_out" (without it there is no verdict). Items
              are dicts with ``input_ids``, ``labels`` (-100 except on the answer) and ``index``.
            - ``oracle``: a model that was never trained on the forget records, the folder of one, or a list of them.
            - ``original``: the model before unlearning, or its folder.
            - ``metric``: whose effect becomes ``agg_value``; by default "m2" with an oracle and "m4" without.
            - ``group_size``: records per author, which follow each other in a dataset, such as 20 for TOFU.
            - ``layer``, ``batch_size`` and ``settings`` (an `AuditSettings` or a mapping of its fields): as
              `audit_models` takes them.

    Returns:
        ``agg_value``, the chance that a forget record scores above a held-out one, 0.5 if the model treats them alike
        (None if it is not known); ``value_by_index``, what the audit says of every forget record; and ``verdict``,
        ``reason``, ``needs`` and ``metrics`` of the audit. All of it can be written as JSON.

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
    oracle = _load(kwargs.get("oracle"))
    report = audit_models(
        model,
        oracle=oracle,
        original=_load(kwargs.get("original")),
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
    return _describe(report, records["forget"][0], kwargs.get("metric") or ("m4" if oracle is None else "m2"))


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


def _describe(report: "Report", indices: list[int], metric: str) -> dict[str, Any]:
    if metric not in report.metrics:
        raise InputError(f"metric must be one of {', '.join(report.metrics)}; got {metric!r}.")
    rows = report.records[[name for name in _COLUMNS if name in report.records]].to_dict("records")
    return {
        "agg_value": _plain(report.metrics[metric].effect),
        "value_by_index": {
            index: {name: _plain(value) for name, value in row.items()}
            for index, row in zip(indices, rows, strict=True)
        },
        "verdict": report.verdict,
        "reason": report.reason,
        "needs": list(report.needs),
        "metrics": {
            name: {
                "effect": _plain(one.effect),
                "p_value": _plain(one.p_value),
                "verdict": one.verdict,
                "reason": one.reason,
            }
            for name, one in report.metrics.items()
        },
    }


def _plain(value: Any) -> Any:
    """A number that JSON knows; None for NaN."""
    if isinstance(value, str) or value is None:
        return value
    return float(value) if math.isfinite(value) else None
