"""A model and records -> what is measured of them: the paper's mode of M1-M4, membership and accuracies."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.core.types import FloatArray, Predictions
from ruler.experiment.records import Records
from ruler.metrics import cosine_similarity, m4
from ruler.metrics.outputs import accuracy, membership_inference

if TYPE_CHECKING:
    import torch  # only the processes that run models pay for loading it

Run = Callable[[Any], "tuple[torch.Tensor, torch.Tensor]"]
"""Rows (n, d) -> representations (n, p) and logits (n, n_classes), in eval mode."""

Scores = dict[str, float | str]
"""Column -> number, or a word of a verdict; what does not apply is absent."""


@dataclass(frozen=True, eq=False)
class Answers:
    """What one model says about the records of one partition."""

    forget: FloatArray  # (n_forget, p) representations
    baseline: FloatArray  # (n_baseline, p)
    alone: Scores  # what needs no second model


def ask(run: Run, records: Records, *, gallery_device: str = "cpu") -> Answers:
    """Read representations and answers of a model, and score what the model alone decides.

    Args:
        run: The model's forward pass.
        records: Of one partition.
        gallery_device: Where M4's neighbours are searched.
    """
    distinct = run(records.distinct)[0]
    forget, gallery = (distinct[rows].to(gallery_device) for rows in (records.forget, records.gallery))
    logits = run(records.parts.train_features)[1].double().cpu().numpy()
    kept, gone = (
        Predictions(logits[rows], records.parts.train_target[rows])
        for rows in (records.partition.retain, records.partition.forget)
    )
    test = Predictions(run(records.parts.test_features)[1].double().cpu().numpy(), records.parts.test_target)
    alone: Scores = {
        "m4": m4(forget, gallery),
        "mia": membership_inference(gone, test),
        "forget_accuracy": accuracy(gone),
        "retain_accuracy": accuracy(kept),
        "test_accuracy": accuracy(test),
    }
    representations = distinct.double().cpu().numpy()
    return Answers(representations[records.forget], representations[records.baseline], alone)


def compare(model: Answers, oracle: Answers) -> Scores:
    """M1, and M2 with the paper's median baseline and with the mean baseline, of a model against an oracle."""
    forget = cosine_similarity(model.forget, oracle.forget)
    baseline = cosine_similarity(model.baseline, oracle.baseline)
    return {
        "m1": float(forget.mean()),
        "m2": float((forget - np.median(baseline)).mean()),
        "m2_mean_baseline": float((forget - baseline.mean()).mean()),
    }


def compare_shift(unlearned: Answers, original: Answers, oracle: Answers) -> Scores:
    """M3: how much closer to the oracle the forget records came."""
    before = cosine_similarity(original.forget, oracle.forget)
    return {"m3": float((cosine_similarity(unlearned.forget, oracle.forget) - before).mean())}
