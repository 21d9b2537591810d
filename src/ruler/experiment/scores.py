"""A model and records -> what is measured of them: the paper's mode of M1-M4, membership and accuracies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.core.arithmetic import norm_rows, similarity_of_unit_rows, unit_rows
from ruler.core.checks import as_matrix, measure_norms
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray, Predictions
from ruler.experiment.gallery import find_nearest
from ruler.experiment.records import Records
from ruler.metrics import m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.metrics.paper import rank_within, subtract_baseline

if TYPE_CHECKING:
    import torch  # only the processes that run models pay for loading it

Run = Callable[[Any], "tuple[torch.Tensor, torch.Tensor]"]
"""Rows (n, d) -> representations (n, p) and logits (n, n_classes), in eval mode."""

Scores = dict[str, float | str]
"""Column -> number, or a word of a verdict; what does not apply is absent."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model says about the records of one partition.

    Args:
        compared: (n_forget + n_baseline, p) representations divided by their norms, float64, forget records first;
            NumPy, or a tensor on the device where the model ran.
        n_forget: How many of these are forget records.
        alone: What needs no second model.
    """

    compared: Any
    n_forget: int
    alone: Scores


def ask(run: Run, records: Records) -> Answers:
    """Read representations and answers of a model, and score what the model alone decides.

    Args:
        run: The model's forward pass, on the device of the records.
        records: Of one partition.

    Raises:
        InputError: Representations or logits that are not finite.
    """
    return ask_all([run], records)[0]


def ask_all(runs: Sequence[Run], records: Records) -> list[Answers]:
    """`ask` for many models at once: a device is waited for twice, whatever their number.

    Raises:
        InputError: Representations or logits of some model that are not finite.
    """
    torch, inputs = load_optional("torch", "running models"), records.inputs
    rows = torch.stack([run(inputs.distinct)[0] for run in runs])  # (models, n, p)
    units = divide_by_norms(rows.flatten(0, 1)).view(rows.shape)
    outputs = [torch.stack(part) for part in zip(*(_read_outputs(run, records) for run in runs), strict=True)]
    found = _fetch([*_find_nearest(units, records), *outputs])
    return [
        Answers(compared, len(records.forget), _score(representations, records, *own))
        for compared, representations, own in zip(
            units[:, inputs.compared], rows, zip(*found, strict=True), strict=True
        )
    ]


def divide_by_norms(rows: Any) -> Any:
    """Representations (n, p), NumPy or a tensor, as rows of norm 1 in float64; an all-zero row stays zero.

    Raises:
        InputError: NaN or inf, or norms that over- or underflow.

    Example:
        >>> divide_by_norms(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    if isinstance(rows, np.ndarray):
        return unit_rows(rows.astype(np.float64), measure_norms(rows, "representations"))
    wide = rows.double()
    norms = norm_rows(wide)
    host = norms.cpu().numpy()
    if not ((host < np.inf) & (host**2 >= np.finfo(np.float64).tiny)).all():
        measure_norms(as_matrix(rows, "representations"), "representations")  # raises, unless these rows are all zero
    return unit_rows(wide, norms)


def _find_nearest(units: "torch.Tensor", records: Records) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Largest similarity of each forget record and of each distinct gallery record to the gallery, and if they hold."""
    inputs = records.inputs
    gallery = units[:, inputs.gallery]
    to_forget, forget_holds = find_nearest(units[:, inputs.forget], gallery)
    to_gallery, gallery_holds = find_nearest(gallery, gallery, is_self=True)
    to_twin = (gallery != 0).any(dim=2).to(to_gallery)  # an identical record is as similar as can be
    return to_forget, to_twin.where(inputs.has_twin, to_gallery), forget_holds & gallery_holds


def _read_outputs(run: Run, records: Records) -> "tuple[torch.Tensor, ...]":
    """Right and unusable answers among the retain records, and the logits of forget and test records."""
    inputs = records.inputs
    logits = run(inputs.train)[1]
    is_right, is_bad = logits.argmax(dim=1) == inputs.classes, ~logits.isfinite().all(dim=1)
    n_right, n_bad = (is_so.sum() - is_so[inputs.forgotten].sum() for is_so in (is_right, is_bad))
    return n_right, n_bad, logits[inputs.forgotten], run(inputs.test)[1]


def _fetch(parts: "Sequence[torch.Tensor]") -> list[FloatArray]:
    """Tensors (models, ...) as NumPy arrays, in one transfer."""
    torch = load_optional("torch", "running models")
    flat: FloatArray = torch.cat([part.reshape(len(part), -1).double() for part in parts], dim=1).cpu().numpy()
    cuts = np.cumsum([part[0].numel() for part in parts])[:-1]
    return [values.reshape(part.shape) for values, part in zip(np.split(flat, cuts, axis=1), parts, strict=True)]


def _score(
    representations: "torch.Tensor",
    records: Records,
    to_forget: FloatArray,
    to_gallery: FloatArray,
    holds: float,
    n_right: float,
    n_bad: float,
    forget_logits: FloatArray,
    test_logits: FloatArray,
) -> Scores:
    """What one model alone decides, from what was fetched of it."""
    if n_bad:
        raise InputError(f"retain must have finite logits; got NaN or inf in {n_bad:.0f} rows. Mend the model.")
    gone = Predictions(forget_logits, records.parts.train_target[records.partition.forget])
    test = Predictions(test_logits, records.parts.test_target)
    if holds:
        rank = float(rank_within(to_forget, to_gallery[records.distinct_gallery[1]]).mean())
    else:
        rank = m4(representations[records.forget], representations[records.gallery])
    return {
        "m4": rank,
        "mia": membership_inference(gone, test),
        "forget_accuracy": accuracy(gone),
        "retain_accuracy": float(n_right / len(records.partition.retain)),
        "test_accuracy": accuracy(test),
    }


def compare(model: Answers, oracle: Answers) -> Scores:
    """M1, and M2 with the paper's median baseline and with the mean baseline, of a model against an oracle."""
    similarity = _compare_rows(model, oracle)
    forget, baseline = similarity[: model.n_forget], similarity[model.n_forget :]
    return {
        "m1": float(forget.mean()),
        "m2": float(subtract_baseline(forget, baseline).mean()),
        "m2_mean_baseline": float((forget - baseline.mean()).mean()),
    }


def compare_shift(unlearned: Answers, original: Answers, oracle: Answers) -> Scores:
    """M3: how much closer to the oracle the forget records came."""
    after, before = (_compare_rows(model, oracle)[: model.n_forget] for model in (unlearned, original))
    return {"m3": float((after - before).mean())}


@lru_cache(maxsize=4)  # a cell reads one twice, and the cells of its seed share the original's
def _compare_rows(model: Answers, oracle: Answers) -> FloatArray:
    value = similarity_of_unit_rows(model.compared, oracle.compared)
    return value if isinstance(value, np.ndarray) else np.asarray(value.cpu())
