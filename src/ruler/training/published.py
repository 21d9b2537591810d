"""The authors' checkpoint files: ``<key>_seed<i>_orig.pt`` and ``<key>_seed<i>_oracle_ff{01,05,10}.pt``."""

import io
from pathlib import Path

import torch
from torch import nn

from ruler.core.errors import CheckpointError, InputError
from ruler.core.files import write_atomically
from ruler.core.readers.arrays import read_torch
from ruler.models.tabular_mlp import TabularMLP

_SIGNS_OF_OTHER_CONTENT = (
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def name_published(key: str, seed: int, forget_fraction: float | None = None) -> str:
    """The authors' file name of an original model, or of the oracle of a forget fraction.

    Example:
        >>> name_published("adult", 0), name_published("adult", 2, 0.05)
        ('adult_seed0_orig.pt', 'adult_seed2_oracle_ff05.pt')
    """
    if forget_fraction is None:
        return f"{key}_seed{seed}_orig.pt"
    percent = round(forget_fraction * 100)
    if not 1 <= percent <= 99 or abs(percent - forget_fraction * 100) > 1e-6:
        raise InputError(
            f"forget_fraction must be a whole percentage from 0.01 to 0.99; got {forget_fraction!r}. "
            "The file names have no room for others."
        )
    return f"{key}_seed{seed}_oracle_ff{percent:02d}.pt"


def export_published(
    model: nn.Module, folder: str | Path, key: str, seed: int, forget_fraction: float | None = None
) -> Path:
    """Write a model's state dict under the authors' file name; returns the path.

    Example:
        >>> import tempfile
        >>> export_published(TabularMLP(4), tempfile.mkdtemp(), "adult", 0, 0.10).name
        'adult_seed0_oracle_ff10.pt'
    """
    path = Path(folder) / name_published(key, seed, forget_fraction)
    content = io.BytesIO()
    torch.save({name: value.detach().cpu().clone() for name, value in model.state_dict().items()}, content)
    write_atomically(path, content.getvalue())
    return path


def import_published(folder: str | Path, key: str, seed: int, forget_fraction: float | None = None) -> TabularMLP:
    """The TabularMLP in a file of the authors' naming, in eval mode; only weights are read, never code.

    Raises:
        CheckpointError: No such file, not a weights file, or not the weights of a TabularMLP.
    """
    path = Path(folder) / name_published(key, seed, forget_fraction)
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} must exist; got no such file. Train it, or name another folder.")
    try:
        state = read_torch(path)
        hidden, n_features = state["net.0.weight"].shape
        model = TabularMLP(n_features, n_classes=len(state["net.6.bias"]), hidden=hidden)
        model.load_state_dict(state)
    except _SIGNS_OF_OTHER_CONTENT as error:
        raise CheckpointError(
            f"checkpoint {path} must hold the weights of a TabularMLP (net.0, net.3, net.6) alone; "
            f"got {type(error).__name__}: {error}"
        ) from error
    return model.eval()
