"""What does forgetting cost in a language model? Short retraining and rewinding on TOFU, beside retraining.

`python -m benchmarks frontier_tofu --out DIR --device cuda [--seconds 540]`; the same command resumes, with the
references that it has trained.

The design was fixed before the first run. The original is fine-tuned on retain and forget authors for 5 epochs at
1e-4, as the study does, and keeps its weights after epochs 1 and 2; the oracle has the same seed and the retain
authors alone. Then, each audited with the original and the oracle by the held-out authors:
- `retrain`: the oracle's training from another seed;
- `fresh-E`: from the pretrained weights, E = 1 or 2 epochs (20% and 40%) of retain authors, with one cycle of the
  rate up to 3e-4;
- `fresh-flat-E`: likewise at 1e-4;
- `rewound-C-E`: from the original after C epochs, E epochs of retain authors at 1e-4, falling to zero;
- `distilled-1`: `fresh-1` towards the original's answers, 90% of the loss, temperature 2.
Rows have cost (time over the oracle's), losses of all sides, verdict and contrasts. Retain loss says what is kept.
"""

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import nn

from benchmarks.faithfulness import FRACTION, REFERENCE_SEED, Laboratory, audit_with, remember_references
from benchmarks.measure import add_row, read_rows
from ruler.core.determinism import seeded
from ruler.experiment.diagnostic.trainers import TRAINING, repeat_exactly
from ruler.training.loop import optimize
from ruler.training.steps import Objective, compute_label_loss, compute_logits, cross_entropy
from ruler.unlearning.distillation import compute_divergence

EPOCHS, RATE, FAST_RATE = 5, 1e-4, 3e-4
KEPT = (1, 2)
KL_WEIGHT, TEMPERATURE = 0.9, 2.0


class TofuRun:
    """The original with its checkpoints, the oracle, and what is made of them."""

    def __init__(self, lab: Laboratory, folder: Path, device: str) -> None:
        self._lab, self._folder, self._device = lab, folder, device
        sides = lab.sides
        self._retain = lab.trainer.select(sides["retain"])
        everything = lab.trainer.select(np.concatenate([sides["retain"], sides["forget"]]))
        self.original = self._load_or("original", lambda: self._train(everything, REFERENCE_SEED, keeps=True))
        began_s = time.perf_counter()
        self.oracle = self._load_or("oracle", lambda: self._train(self._retain, REFERENCE_SEED))
        path = folder / "retraining_s.json"
        if not path.is_file():
            path.write_text(json.dumps(time.perf_counter() - began_s))
        self.retraining_s: float = json.loads(path.read_text())
        outputs = {
            name: lab.trainer.read(model) for name, model in (("original", self.original), ("oracle", self.oracle))
        }
        self._sides = {name: lab.gather_sides(one) for name, one in outputs.items()}
        skills = {name: lab.measure_skill(one) for name, one in outputs.items()}
        remember_references(self._sides["original"], [self._sides["oracle"]], skills)

    def list_models(self) -> dict[str, Callable[[], nn.Module]]:
        """How each model is made, by name."""
        cycle: dict[str, Any] = {"schedule": "one_cycle", "learning_rate": FAST_RATE}
        train = partial(self._train, self._retain)
        found: dict[str, Callable[[], nn.Module]] = {"original": lambda: self.original}
        found["retrain"] = partial(train, REFERENCE_SEED + 1)
        for epochs in (1, 2):
            found[f"fresh-{epochs}"] = partial(train, REFERENCE_SEED + 2, epochs=epochs, **cycle)
            found[f"fresh-flat-{epochs}"] = partial(train, REFERENCE_SEED + 2, epochs=epochs)
        for kept, epochs in ((1, 1), (2, 1), (1, 2)):
            start = partial(self._load, f"original-{kept}")
            found[f"rewound-{kept}-{epochs}"] = partial(
                train, REFERENCE_SEED + 3, epochs=epochs, start=start, schedule="cosine"
            )
        found["distilled-1"] = partial(train, REFERENCE_SEED + 2, epochs=1, objective=self._follow_original, **cycle)
        return found

    def _follow_original(self, student: nn.Module, batch: Any) -> torch.Tensor:
        logits = compute_logits(student, batch[0])
        with torch.no_grad():
            answers = compute_logits(self.original, batch[0])
        apart = TEMPERATURE**2 * compute_divergence(logits, answers, TEMPERATURE, labels=batch[1])
        return KL_WEIGHT * apart + (1 - KL_WEIGHT) * compute_label_loss(logits, batch[1])

    def _train(
        self,
        records: Any,
        seed: int,
        *,
        epochs: int = EPOCHS,
        start: Callable[[], nn.Module] | None = None,
        objective: Objective = cross_entropy,
        keeps: bool = False,
        **changes: Any,
    ) -> nn.Module:
        settings = replace(
            TRAINING["causal_lm"], **{"epochs": epochs, "learning_rate": RATE, "precision": "bfloat16", **changes}
        )
        model = copy.deepcopy(self._lab.trainer.base if start is None else start())

        def keep(epoch: int, loss: float) -> None:
            if keeps and epoch in KEPT:
                self._save(f"original-{epoch}", model)

        with seeded(seed), repeat_exactly(self._device):
            optimize(model, objective, {"data": records}, settings, seed=seed, on_epoch=keep)
        return model.eval()

    def _load_or(self, name: str, make: Callable[[], nn.Module]) -> nn.Module:
        if not (self._folder / f"{name}.safetensors").is_file():
            self._save(name, make())
        return self._load(name)

    def _save(self, name: str, model: nn.Module) -> None:
        path = self._folder / f"{name}.safetensors"
        save_model(model, f"{path}.partial")
        os.replace(f"{path}.partial", path)

    def _load(self, name: str) -> nn.Module:
        model = copy.deepcopy(self._lab.trainer.base)
        load_model(model, self._folder / f"{name}.safetensors")
        return model.eval()

    def measure(self, make: Callable[[], nn.Module]) -> dict[str, Any]:
        """Make a model, audit it, and tell what it cost and keeps."""
        began_s = time.perf_counter()
        model = make()
        if self._device != "cpu":
            torch.cuda.synchronize()
        cost = (time.perf_counter() - began_s) / self.retraining_s
        outputs = self._lab.trainer.read(model)
        skill = self._lab.measure_skill(outputs)
        losses = {f"{side}_loss": float(outputs.losses[rows].mean()) for side, rows in self._lab.sides.items()}
        audited = audit_with([self._sides["oracle"]], self._lab.gather_sides(outputs), skill)
        return {"cost": cost, **skill, **losses, **audited}


def main() -> None:
    """Train and audit until everything is done or the time is over."""
    parser = argparse.ArgumentParser(prog="benchmarks frontier_tofu")
    parser.add_argument("--out", type=Path, required=True, help="for rows.jsonl")
    parser.add_argument("--weights", type=Path, help="for the references, half a gigabyte each; by default in --out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--language-model")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--size", default="full", choices=("full", "smoke"))
    options = parser.parse_args()
    ends_s = time.monotonic() + options.seconds
    weights = options.weights or options.out
    for folder in (options.out, weights):
        folder.mkdir(parents=True, exist_ok=True)
    run = TofuRun(
        Laboratory("tofu", FRACTION, options.device, options.language_model, options.size), weights, options.device
    )
    path = options.out / "rows.jsonl"
    done = {row["model"] for row in read_rows(path)}
    for name, make in run.list_models().items():
        if name in done or time.monotonic() > ends_s:
            continue
        row = {"model": name, **run.measure(make)}
        add_row(path, row)
        print(f"{name}: {row['verdict']}, cost {row['cost']:.2f}, retain loss {row['retain_loss']:.2f}", flush=True)
