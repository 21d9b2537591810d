"""Which parts of a record a model's forward takes, and how records of unequal length become one tensor."""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ruler.core.errors import InputError

Key = int | str
"""A part of a record: its position among the arguments of forward, or its name."""

Labels = Tensor | npt.NDArray[np.str_]
"""What records are labelled: numbers, one or several per record, or text."""

IGNORED_TOKEN = -100
MARKS_NAME = "span_mask"
"""The key of what marks a span of tokens, 1 for its tokens and 0 elsewhere, in the shape of the labels."""

_LABEL_NAMES = ("labels", "label")
_NEVER_FED = {*_LABEL_NAMES, "id", "ids", MARKS_NAME}


@dataclass(frozen=True)
class ForwardSignature:
    """What a model's forward takes.

    Args:
        required: Parameters without a default.
        optional: Parameters with one.
        only_named: Refuse tuples, since their meaning by position cannot be known (Hugging Face models).
        padding: What fills up short sequences, by parameter; 0 for the others.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    only_named: bool = False
    padding: Mapping[str, int] = field(default_factory=dict)

    def pick(self, record: Any) -> dict[Key, Any]:
        """The parts of one record, or of a batch of records, that forward is given."""
        if isinstance(record, Mapping):
            return self._pick_named(record)
        if _is_of_parts(record):
            return dict(enumerate(record[: self._count_fed(len(record))]))
        return {0: record}

    def pick_label(self, record: Any) -> Any:
        """The label of one record, or the labels of a batch; None where there is none.

        That is the one part of a tuple beyond what forward takes, or the key ``labels`` or ``label`` of a dict. Of
        several such parts, any could be the label: a weight or a row number may stand behind it.
        """
        if isinstance(record, Mapping):
            return next((record[key] for key in _LABEL_NAMES if key in record and key not in self.required), None)
        if _is_of_parts(record) and len(record) == self._count_fed(len(record)) + 1:
            return record[-1]
        return None

    def pick_marks(self, record: Any) -> Any:
        """The marked span of one record, or of a batch; None where there is none."""
        is_there = isinstance(record, Mapping) and MARKS_NAME in record and MARKS_NAME not in self.required
        return record[MARKS_NAME] if is_there else None

    def _pick_named(self, record: Mapping[str, Any]) -> dict[Key, Any]:
        known = (*self.required, *self.optional)
        fed: dict[Key, Any] = {
            key: value
            for key, value in record.items()
            if (key in known or not known) and (key not in _NEVER_FED or key in self.required)
        }
        open_names = [name for name in known if name not in fed]
        for key in (key for key in record if key not in known and known):
            if near := difflib.get_close_matches(str(key), open_names, n=1, cutoff=0.9):
                raise InputError(
                    f"data keys must be parameters of the model's forward; got {key!r}. Did you mean {near[0]!r}?"
                )
        missing = [name for name in self.required if name not in fed]
        if missing or not fed:
            raise InputError(
                f"data must hold the model's inputs ({', '.join(missing or known)}) as keys; "
                f"got {', '.join(map(str, record))}. Rename the keys to the parameters of forward."
            )
        return fed

    def _count_fed(self, n_parts: int) -> int:
        if self.only_named:
            raise InputError(
                f"records for a Hugging Face model must be dicts or single tensors; got tuples of {n_parts}. "
                "Name the parts, e.g. {'input_ids': ..., 'attention_mask': ...}."
            )
        n_required = max(1, len(self.required))
        if n_parts < n_required:
            raise InputError(
                f"records must hold the model's inputs ({', '.join(self.required)}); got tuples of {n_parts}."
            )
        if n_parts > n_required + 1 and self.optional:
            raise InputError(
                f"records must be unambiguous; got tuples of {n_parts} for a forward with the optional "
                f"parameters {', '.join(self.optional)}. Give dicts keyed by the parameters of forward."
            )
        return n_required


def read_signature(
    model: nn.Module, *, only_named: bool = False, padding: Mapping[str, int] | None = None
) -> ForwardSignature:
    """What a model's forward takes."""
    required: list[str] = []
    optional: list[str] = []
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        (required if parameter.default is parameter.empty else optional).append(name)
    return ForwardSignature(tuple(required), tuple(optional), only_named, padding or {})


def collate(records: Sequence[dict[Key, Any]], signature: ForwardSignature) -> dict[Key, Tensor]:
    """Records become one batch: equal shapes are stacked, named sequences of unequal length are padded.

    Where padding was needed and forward takes an ``attention_mask`` that the records lack, it is made.
    """
    if any(record.keys() != records[0].keys() for record in records):
        raise InputError("records must all have the same parts; got different keys or tuple lengths.")
    columns: dict[Key, Tensor] = {}
    for key in records[0]:
        parts = [to_tensor(record[key]) for record in records]
        lengths = {len(part) if part.ndim == 1 else -1 for part in parts}
        if len({part.shape for part in parts}) == 1:
            columns[key] = torch.stack(parts)
        elif isinstance(key, str) and -1 not in lengths:
            columns[key] = nn.utils.rnn.pad_sequence(
                parts, batch_first=True, padding_value=float(signature.padding.get(key, 0))
            )
            if "attention_mask" in signature.optional and "attention_mask" not in records[0]:
                ones = [torch.ones(len(part), dtype=torch.int64) for part in parts]
                columns["attention_mask"] = nn.utils.rnn.pad_sequence(ones, batch_first=True)
        else:
            shapes = sorted({tuple(part.shape) for part in parts})
            raise InputError(
                f"records must have equal shapes; got {shapes[0]} and {shapes[-1]}. "
                "Crop or pad them, or give token lists as dicts."
            )
    return columns


def collate_labels(labels: Sequence[Any], padding: int = IGNORED_TOKEN) -> Labels | None:
    """Labels of single records as one array; token labels of unequal length are padded. None if they do not fit."""
    if any(label is None for label in labels):
        return None
    if all(isinstance(label, str) for label in labels):
        return np.array(labels, dtype=np.str_)
    try:
        # through NumPy: torch would round a Python float to float32
        parts = [label if isinstance(label, Tensor) else to_tensor(np.asarray(label)) for label in labels]
    except InputError:
        return None
    if len({part.shape for part in parts}) == 1:
        return torch.stack(parts)
    if any(part.ndim != 1 or part.is_floating_point() for part in parts):
        return None
    return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=padding)


def to_tensor(value: Any) -> Tensor:
    """Anything array-like as a tensor."""
    if isinstance(value, Tensor):
        return value
    try:
        if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
            return torch.utils.dlpack.from_dlpack(value)
        # a copy, for torch warns of arrays that it must not write to, as memory maps are
        return torch.as_tensor(np.array(value)) if hasattr(value, "__array__") else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        hint = " Tokenise texts first." if isinstance(value, str) else ""
        if isinstance(value, Mapping):
            keys = ", ".join(map(str, value))[:80]
            hint = f" Records must be flat: give its parts ({keys}) as keys of the record itself."
        raise InputError(
            f"data must be made of numbers; got {type(value).__name__} that torch cannot take.{hint}"
        ) from error


def _is_of_parts(record: Any) -> bool:
    if isinstance(record, list):
        return bool(record) and (isinstance(record[0], Tensor) or hasattr(record[0], "__array__"))
    return isinstance(record, tuple)
