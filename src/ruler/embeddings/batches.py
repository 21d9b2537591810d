"""Some records as a model is fed them, with what stands beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Subset

from ruler.core.errors import InputError
from ruler.core.types import IndexArray
from ruler.embeddings.inputs import IGNORED_TOKEN, MARKS_NAME, ForwardSignature, Key, Labels

_WIDEST_FEATURES = 1000
_BESIDE = {"ids": ("id", "ids"), "groups": ("groups", "group"), "strata": ("strata",)}

Beside = Mapping[str, npt.NDArray[Any]]
"""What stands beside the records, by field of `Embeddings`: ids, groups, strata."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some records as arguments of forward, with their labels and what else stands beside them.

    Args:
        columns: By position or name.
        labels: Numbers or text.
        beside: Ids, groups and strata.
        marks: (n, t) which tokens belong to a marked span, 0 or 1.
        rows: Which records of the data these are, where they do not follow each other.
    """

    columns: Mapping[Key, Tensor]
    labels: Labels | None = None
    beside: Beside = field(default_factory=dict)
    marks: Tensor | None = None
    rows: IndexArray | None = None

    @property
    def n_rows(self) -> int:
        """How many records."""
        return len(next(iter(self.columns.values())))

    @property
    def positional(self) -> list[Tensor]:
        """The arguments by position."""
        return [value for key, value in self.columns.items() if isinstance(key, int)]

    @property
    def named(self) -> dict[str, Tensor]:
        """The arguments by name."""
        return {key: value for key, value in self.columns.items() if isinstance(key, str)}

    @property
    def has_token_labels(self) -> bool:
        """Whether the labels are token ids, several per record."""
        labels = self.labels
        return isinstance(labels, Tensor) and labels.ndim == 2 and not labels.is_floating_point()

    def find_predicting(self, *, is_shifted: bool, is_apart: bool = False, of_marks: bool = False) -> Tensor:
        """(n, t) at which places a token is predicted that its label counts.

        Args:
            is_shifted: A place predicts the token behind it, as in causal models.
            is_apart: The labels are a decoder's, so that the attention mask is of other tokens.
            of_marks: Only tokens of the marked span.
        """
        assert isinstance(self.labels, Tensor)
        device = next(iter(self.columns.values())).device
        is_counted = self.labels.to(device) != IGNORED_TOKEN
        if of_marks:
            if self.marks is None or self.marks.shape != is_counted.shape:
                found = None if self.marks is None else tuple(self.marks.shape)
                raise InputError(
                    f"data must mark a span in the shape of its labels, {tuple(is_counted.shape)}, under the key "
                    f"{MARKS_NAME!r}; got {found}. Give it, or choose another pooling."
                )
            is_counted = is_counted & (self.marks.to(device) != 0)
        mask = None if is_apart else self.named.get("attention_mask")
        has_mask = mask is not None and mask.shape == is_counted.shape
        is_real = mask != 0 if mask is not None and has_mask else torch.ones_like(is_counted)
        is_counted = is_counted & is_real
        if is_shifted:
            ahead = torch.zeros_like(is_counted)
            ahead[:, :-1] = is_counted[:, 1:] & is_real[:, :-1]
            return ahead
        return is_counted

    @property
    def features(self) -> npt.NDArray[Any] | None:
        """The records themselves, where they are plain rows of real numbers (n, d), d at most 1000."""
        rows = next(iter(self.columns.values()))
        is_plain = len(self.columns) == 1 and rows.is_floating_point() and rows.ndim == 2
        if not is_plain or rows.shape[1] > _WIDEST_FEATURES:
            return None
        return rows.detach().to("cpu", rows.dtype if rows.dtype == torch.float64 else torch.float32).numpy()

    def placed(self, device: torch.device, float_dtype: torch.dtype | None) -> "Batch":
        """The same batch on a device, with its real numbers in the model's precision."""
        return replace(
            self,
            columns={
                key: value.to(device, float_dtype if value.is_floating_point() else None)
                for key, value in self.columns.items()
            },
        )


def find_beside_in(record: Mapping[str, Any], signature: ForwardSignature) -> dict[str, npt.NDArray[Any]]:
    """What a record, or a batch of records, carries beside its inputs."""
    fed = (*signature.required, *signature.optional)
    found = {}
    for name, keys in _BESIDE.items():
        key = next((key for key in keys if key in record and (name == "ids" or key not in fed)), None)
        if key is not None:
            found[name] = _as_array(record[key])
    return found


def find_beside_of(dataset: Any) -> dict[str, npt.NDArray[Any]]:
    """What a Dataset carries as the attributes ``ids``, ``groups`` and ``strata``."""
    if isinstance(dataset, Subset):
        rows = np.asarray(dataset.indices)
        return {"ids": rows} | {name: whole[rows] for name, whole in find_beside_of(dataset.dataset).items()}
    found = {}
    for name in _BESIDE:
        value: Any = getattr(dataset, name, None)
        # an attribute "groups" may be anything, such as a list of the groups that there are
        is_meant = name == "ids" or (hasattr(value, "__len__") and len(value) == len(dataset))
        if value is not None and not callable(value) and is_meant:
            found[name] = _as_array(value)
    return found


def _as_array(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)


def check_beside(beside: dict[str, npt.NDArray[Any]], n_records: int) -> dict[str, npt.NDArray[Any]]:
    """What stands beside the records, provided that it is one value for each.

    Raises:
        InputError: It is not.
    """
    for name, values in beside.items():
        if values.shape != (n_records,):
            raise InputError(f"{name} must be one per record, shape ({n_records},); got shape {values.shape}.")
    return beside
