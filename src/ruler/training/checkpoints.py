"""Trained models on disk: our store, keyed by everything that decides the weights, and the authors' published files."""

import hashlib
import io
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as pack_tensors
from torch import nn

from ruler.core.errors import CheckpointError, InputError
from ruler.core.files import cache_folder, write_atomically, writing_safely
from ruler.core.readers.arrays import read_torch
from ruler.core.types import Partition
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.batches import device_of
from ruler.training.loop import LOOP_VERSION
from ruler.training.settings import TrainingSettings

State = dict[str, Any]
"""A state dict of tensors."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a trained model's weights; equal recipes give the same model.

    Args:
        architecture: The class, its printed layers and its tensors' shapes.
        data: Content hash of all training inputs and labels.
        rows: Hash of the rows trained on, or ``"all"``.
        settings: The settings as JSON.
        seed: The training seed.
        trainer: Which code trained, on which kind of device: ``"loop 1 on cpu"``.
    """

    architecture: str
    data: str
    rows: str
    settings: str
    seed: int
    trainer: str = f"loop {LOOP_VERSION} on cpu"

    @property
    def manifest(self) -> str:
        """The recipe as canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def key(self) -> str:
        """SHA-256 of the manifest: the file's name."""
        return hashlib.sha256(self.manifest.encode()).hexdigest()


def describe_training(
    model: nn.Module,
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    partition: Partition | None,
    settings: TrainingSettings,
    seed: int,
    trainer: str | None = None,
) -> Recipe:
    """The recipe of training ``model`` on all rows, or on a partition's retain rows.

    Example:
        >>> rows, labels = np.eye(2), np.array([0, 1])
        >>> make = lambda seed: describe_training(
        ...     nn.Linear(2, 2), rows, labels, partition=None, settings=TrainingSettings(), seed=seed)
        >>> make(0).key == make(0).key, make(0).key == make(1).key
        (True, False)
    """
    values = asdict(settings)
    # A field that came later counts only where it is used, so that old files stay valid.
    unused = {field.name for field in fields(TrainingSettings) if field.kw_only and values[field.name] == field.default}
    used = {name: value for name, value in values.items() if name not in unused}
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    return Recipe(
        architecture=f"{kind} {model!r} {json.dumps(shapes)}",
        data=hash_arrays(np.asarray(inputs), np.asarray(labels)),
        rows="all" if partition is None else hash_arrays(partition.retain),
        settings=json.dumps({"class": type(settings).__name__, **used}, sort_keys=True),
        seed=seed,
        trainer=trainer or f"loop {LOOP_VERSION} on {device_of(model).type}",
    )


def hash_arrays(*arrays: npt.NDArray[Any]) -> str:
    """SHA-256 of the arrays' types, shapes and bytes.

    Example:
        >>> hash_arrays(np.zeros(2)) == hash_arrays(np.zeros((2, 1)))
        False
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class CheckpointStore:
    """A folder of trained models, one safetensors file per recipe, safe to share between processes.

    A file appears whole or not at all (written aside, then renamed), and carries its recipe and a checksum
    of its tensors, both compared at every load.

    Args:
        folder: None takes ``models`` in the cache folder.

    Example:
        >>> import tempfile
        >>> store = CheckpointStore(tempfile.mkdtemp())
        >>> recipe = Recipe("Linear(2, 2)", data="4f2a", rows="all", settings="{}", seed=0)
        >>> _ = store.get_or_train(recipe, nn.Linear(2, 2).state_dict)
        >>> recipe in store, sorted(store.load(recipe))
        (True, ['bias', 'weight'])
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else cache_folder() / "models"

    def path_of(self, recipe: Recipe) -> Path:
        """Where the model of this recipe lies, or would lie."""
        return self.folder / recipe.key[:2] / f"{recipe.key}.safetensors"

    def __contains__(self, recipe: Recipe) -> bool:
        return self.path_of(recipe).is_file()

    def save(self, recipe: Recipe, state: State) -> Path:
        """Store a state dict of tensors under its recipe."""
        tensors = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
        metadata = {
            "manifest": recipe.manifest,
            "checksum": _hash_tensors(tensors),
            "made_with": f"torch {torch.__version__}",
        }
        path = self.path_of(recipe)
        write_atomically(path, pack_tensors(tensors, metadata))
        return path

    def load(self, recipe: Recipe) -> State:
        """The stored state dict.

        Raises:
            CheckpointError: No such file, not a safetensors file, another recipe, or a wrong checksum.
        """
        path = self.path_of(recipe)
        try:
            with safe_open(str(path), framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"checkpoint {path} must be a readable safetensors file; got {error}. Delete it to train anew."
            ) from error
        if metadata.get("manifest") != recipe.manifest:
            raise CheckpointError(
                f"checkpoint {path} must carry the manifest of its recipe; got {metadata.get('manifest')!r}. "
                "Delete it to train anew."
            )
        if metadata.get("checksum") != _hash_tensors(tensors):
            raise CheckpointError(
                f"checkpoint {path} must match its checksum; got other tensors. Delete it to train anew."
            )
        return tensors

    def get_or_train(self, recipe: Recipe, train: Callable[[], State]) -> State:
        """The stored state, or a newly trained one, which is then stored; a damaged file is trained anew.

        Processes that want the same model at the same time wait for the first of them to train it.

        Raises:
            WriteError: The folder cannot be written.
        """
        path = self.path_of(recipe)
        with writing_safely(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_suffix(".lock")).acquire()
        with lock:
            if recipe in self:
                try:
                    return self.load(recipe)
                except CheckpointError as error:
                    warnings.warn(f"training anew: {error}", RuntimeWarning, stacklevel=2)
            state = train()
            self.save(recipe, state)
        return state


def _hash_tensors(tensors: State) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def name_published(key: str, seed: int, forget_fraction: float | None = None) -> str:
    """The authors' file name: ``<key>_seed<i>_orig.pt``, or ``<key>_seed<i>_oracle_ff{01,05,10}.pt`` for an oracle.

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
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"checkpoint {path} must hold the weights of a TabularMLP (net.0, net.3, net.6) alone; "
            f"got {type(error).__name__}: {error}"
        ) from error
    return model.eval()
