"""What classifiers say about records, where the data carries their labels."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ruler.core.types import Predictions
from ruler.embeddings import huggingface
from ruler.embeddings.batches import Batch, open_source
from ruler.embeddings.forward import bare_module, plan_reading, undisturbed
from ruler.embeddings.inputs import Inlet, read_inlet

_BATCH_SIZE = 256
_LABEL_KEYS = ("labels", "label")


def read_predictions(model: nn.Module, data: Any) -> Predictions | None:
    """How does this classifier score these records, and what are they really?

    The model runs as in `embed`: eval mode, no gradients, left as it was.

    Args:
        model: A torch or Hugging Face model.
        data: As `embed` takes it; labels are the last part of a tuple beyond what forward takes, or the key
            ``labels`` or ``label`` of a dict.

    Returns:
        Logits (n, n_classes) and labels (n,); None where the data has no labels, they are not classes 0..n_classes-1,
        or the model gives no row of logits a record.

    Example:
        >>> import torch
        >>> found = read_predictions(nn.Linear(2, 3), (torch.eye(2), torch.tensor([0, 2])))
        >>> found.logits.shape, found.labels.tolist()
        ((2, 3), [0, 2])
        >>> read_predictions(nn.Linear(2, 3), torch.eye(2)) is None
        True
    """
    module = bare_module(model)
    is_hugging = huggingface.is_huggingface(module)
    inlet = read_inlet(module, only_named=is_hugging, padding=huggingface.padding_of(module) if is_hugging else None)
    labels = _read_labels(data, inlet)
    if labels is None:
        return None
    logits = _read_logits(module, data, inlet)
    if logits is None or len(logits) != len(labels) or labels.max() >= logits.shape[1]:
        return None
    return Predictions(logits, labels)


def _read_logits(module: nn.Module, data: Any, inlet: Inlet) -> npt.NDArray[np.float64] | None:
    blocks = []
    with undisturbed(module, None) as device:
        dtype = plan_reading(module, None).input_dtype
        for batch in open_source(data, inlet, _BATCH_SIZE).read():
            block = _run(module, batch.placed(device, dtype))
            if block is None:  # a language model would fill the memory with scores of words
                return None
            blocks.append(block)
    return np.concatenate(blocks)


def _run(module: nn.Module, batch: Batch) -> npt.NDArray[np.float64] | None:
    answer = module(*batch.positional, **batch.named)
    logits = getattr(answer, "logits", answer)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        return None
    values: npt.NDArray[np.float64] = logits.double().cpu().numpy()
    return values if np.isfinite(values).all() else None


def _read_labels(data: Any, inlet: Inlet) -> npt.NDArray[np.int64] | None:
    found = [_as_labels(part) for part in _iterate_labels(data, inlet)]
    known = [part for part in found if part is not None]
    if not known or len(known) != len(found):
        return None
    labels = np.concatenate(known)
    return labels if len(labels) and labels.min() >= 0 else None


def _iterate_labels(data: Any, inlet: Inlet) -> Iterator[Any]:
    is_array = hasattr(data, "__array__") or hasattr(data, "__dlpack__")
    is_whole = isinstance(data, Mapping) or (isinstance(data, tuple) and all(hasattr(part, "shape") for part in data))
    if is_array:
        return
    if is_whole:
        yield _label_of(data, inlet)
    elif isinstance(data, DataLoader):
        yield from (_label_of(batch, inlet) for batch in data)
    elif hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        yield from (_label_of(data[row], inlet) for row in range(len(data)))


def _label_of(record: Any, inlet: Inlet) -> Any:
    """The label of a record, or the labels of a batch; None where there is none."""
    if isinstance(record, Mapping):
        return next((record[key] for key in _LABEL_KEYS if key in record and key not in inlet.required), None)
    if isinstance(record, tuple | list) and len(record) > len(inlet.pick(record)):
        return record[-1]
    return None


def _as_labels(part: Any) -> npt.NDArray[np.int64] | None:
    if part is None:
        return None
    labels = np.atleast_1d(part.detach().cpu().numpy() if isinstance(part, Tensor) else np.asarray(part))
    return labels.astype(np.int64) if labels.ndim == 1 and labels.dtype.kind in "iu" else None
