"""Many multilayer perceptrons of one shape, held as one tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from ruler.core.checks import as_matrix
from ruler.core.determinism import seeded
from ruler.core.errors import InputError
from ruler.models.tabular_mlp import TabularMLP

_ALIGNMENT = 32  # a member's parameters start at a multiple of 128 bytes, as fast products want


class Layers(NamedTuple):
    """Views of stacked parameters, in the order and shapes of ``TabularMLP``'s state dict."""

    weight_1: torch.Tensor  # (members, hidden, n_features)
    bias_1: torch.Tensor  # (members, hidden)
    weight_2: torch.Tensor  # (members, hidden, hidden)
    bias_2: torch.Tensor  # (members, hidden)
    weight_3: torch.Tensor  # (members, n_classes, hidden)
    bias_3: torch.Tensor  # (members, n_classes)


@dataclass(frozen=True)
class MLPShape:
    """The shape that all members share; the defaults are the paper's, as in ``TabularMLP``.

    Example:
        >>> MLPShape(n_features=13).make_model(seed=0).net[0].weight.shape
        torch.Size([128, 13])
    """

    n_features: int
    n_classes: int = 2
    hidden: int = 128
    dropout: float = 0.2

    def make_model(self, seed: int) -> TabularMLP:
        """The untrained model of this seed; the caller's random streams are left alone."""
        with seeded(seed):
            return TabularMLP(self.n_features, self.n_classes, self.hidden, self.dropout)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of each parameter, in the order of the state dict."""
        return {
            "net.0.weight": (self.hidden, self.n_features),
            "net.0.bias": (self.hidden,),
            "net.3.weight": (self.hidden, self.hidden),
            "net.3.bias": (self.hidden,),
            "net.6.weight": (self.n_classes, self.hidden),
            "net.6.bias": (self.n_classes,),
        }

    def flat_size(self) -> int:
        """Numbers a member holds, rounded up so that members stay aligned."""
        n_parameters = sum(int(np.prod(shape)) for shape in self.parameter_shapes().values())
        return -(-n_parameters // _ALIGNMENT) * _ALIGNMENT

    def view_layers(self, flat: torch.Tensor) -> Layers:
        """Views into ``flat`` (members, flat_size); it holds the first weight transposed.

        Its gradient is the product with the narrowest side, up to five times faster with that side first.
        """
        views, start = [], 0
        for name, shape in self.parameter_shapes().items():
            part = flat[:, start : start + int(np.prod(shape))]
            is_first = name == "net.0.weight"
            views.append(part.view(-1, *shape[::-1]).mT if is_first else part.view(-1, *shape))
            start += part.shape[1]
        return Layers(*views)


@dataclass(frozen=True, eq=False)
class StackedMLP:
    """The trained models of an ensemble: member i is what a ``TabularMLP`` would be.

    Args:
        flat: (members, shape.flat_size()) parameters, on any device.
        shape: What every member looks like.

    Example:
        >>> models = StackedMLP.from_seeds([0, 1], MLPShape(n_features=3))
        >>> len(models), models.embed(np.zeros((5, 3)), 1).shape
        (2, (5, 128))
    """

    flat: torch.Tensor
    shape: MLPShape

    @classmethod
    def from_seeds(cls, seeds: Sequence[int], shape: MLPShape) -> "StackedMLP":
        """Untrained members, each bit for bit the ``TabularMLP`` built after ``torch.manual_seed(seed)``."""
        fresh = {seed: shape.make_model(seed).state_dict() for seed in dict.fromkeys(seeds)}
        return cls.from_state_dicts([fresh[seed] for seed in seeds], shape)

    @classmethod
    def from_state_dicts(cls, states: Sequence[Mapping[str, torch.Tensor]], shape: MLPShape) -> "StackedMLP":
        """Members that were trained elsewhere, given as state dicts of ``TabularMLP``.

        Raises:
            InputError: A state dict of another architecture.
        """
        flat = torch.zeros(len(states), shape.flat_size())
        layers = shape.view_layers(flat)
        for i, state in enumerate(states):
            found = {name: tuple(value.shape) for name, value in state.items()}
            if found != shape.parameter_shapes():
                raise InputError(
                    f"states[{i}] must hold the parameters {shape.parameter_shapes()}; got {found}. "
                    "Give the MLPShape that the model was trained with."
                )
            for name, layer in zip(shape.parameter_shapes(), layers, strict=True):
                layer[i] = state[name]
        return cls(flat, shape)

    def __len__(self) -> int:
        return len(self.flat)

    def select(self, members: Sequence[int]) -> "StackedMLP":
        """A copy of some members, in the given order; one may be named several times."""
        return StackedMLP(self.flat[torch.as_tensor(members, device=self.flat.device)], self.shape)

    def to(self, device: torch.device | str) -> "StackedMLP":
        """The same members on another device."""
        return StackedMLP(self.flat.to(device), self.shape)

    def state_dict(self, member: int) -> dict[str, torch.Tensor]:
        """A member's parameters under ``TabularMLP``'s names, copied to the CPU."""
        layers = self.shape.view_layers(self.flat[member][None])
        return {
            name: layer[0].detach().cpu().clone()
            for name, layer in zip(self.shape.parameter_shapes(), layers, strict=True)
        }

    def embed(self, features: npt.ArrayLike | torch.Tensor, member: int) -> npt.NDArray[np.float32]:
        """A member's representation of each row, (n, hidden): the output of the second ReLU, in eval mode."""
        return self.run_member(features, member)[0].cpu().numpy()

    def logits(self, features: npt.ArrayLike | torch.Tensor, member: int) -> npt.NDArray[np.float32]:
        """A member's class scores of each row, (n, n_classes), in eval mode."""
        return self.run_member(features, member)[1].cpu().numpy()

    def run_member(self, features: npt.ArrayLike | torch.Tensor, member: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Representations (n, hidden) and class scores (n, n_classes) in eval mode, where the members lie."""
        rows = as_feature_tensor(features, self.flat.device)
        self.check_columns(rows)
        return self.forward(rows, member)

    def forward(self, rows: torch.Tensor, member: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`run_member` of float32 rows that lie with the members and were checked before: nothing waits for them."""
        own = Layers(*(layer[0] for layer in self.shape.view_layers(self.flat[member][None])))
        first = functional.linear(rows, own.weight_1, own.bias_1).relu_()
        second = functional.linear(first, own.weight_2, own.bias_2).relu_()
        return second, functional.linear(second, own.weight_3, own.bias_3)

    def check_columns(self, rows: torch.Tensor) -> None:
        """Refuse rows (n, n_features) that are not as wide as those that the members were trained on."""
        if rows.shape[1] != self.shape.n_features:
            raise InputError(
                f"features must have {self.shape.n_features} columns, as in training; got {rows.shape[1]}. "
                "Give the columns that the members were trained on."
            )


def as_feature_tensor(features: npt.ArrayLike | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Any (n, d) array as a finite float32 tensor on ``device``."""
    if isinstance(features, torch.Tensor) and features.ndim == 2 and features.numel() > 0:
        values = features.detach()
    else:
        values = torch.tensor(as_matrix(features, "features"))
    rows = values.to(device, torch.float32)
    n_bad = int((~rows.isfinite().all(dim=1)).sum())
    if n_bad:
        raise InputError(
            f"features must be finite float32 numbers; got NaN or inf in {n_bad} rows. Impute or drop them."
        )
    return rows
