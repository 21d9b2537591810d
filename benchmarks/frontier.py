"""What does forgetting cost, and what remains? Short retraining, rewinding and distillation beside retraining.

`python -m benchmarks frontier --out DIR` trains and audits on tables; `--data cifar10 --device cuda` and `--data lfw
--device cuda` on images. The same command resumes. `--csv docs/bench/frontier.csv --write docs/frontier.md` tells
what was found.

The design was fixed before the first run; rates and shares were tried on Electricity and Bank Marketing, which are
not among the tables. A run is a dataset, true or planted labels, and a draw of forget, retain, held-out, validation
and test records. Its original is trained on retain and forget records and keeps checkpoints after 10%, 25% and 50% of
the epochs; its oracle has the same seed. Then, each audited with the original and the oracle, by held-out records
that no method reads:
- `retrain`: the oracle's training from another seed;
- `fresh-C`: short retraining from fresh weights in a share C of the epochs;
- `rewound-S`: 10% of the epochs (images: 15%) on retain records from the checkpoint at S, at a rate that falls to 0;
- `tested`: short retraining with all three checkpoints, latest first, and validation records;
- `distilled`: a fresh student in 20% of the epochs that learns the original's answers on retain records;
- `filtered`: likewise, but plain labels for the half of the retain records that lie nearest to forget records;
- `fine_tuning`, `scrub`, `salun` with their defaults.
Cost is the time of a model over that of retraining in the same run (seconds of the processor, or of the clock on a
GPU); checkpoints were stored anyway. Of the runs in which `retrain` is erased, the share in which a model is; the
loss of accuracy on test records against `retrain`; and the mean loss contrast over runs, which shows a leak that
single verdicts miss.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.measure import add_row, read_rows
from benchmarks.worlds import Reading, World, list_remaining, make_world
from ruler.auditing.contrasts import OWN
from ruler.core.determinism import seeded
from ruler.experiment.diagnostic.trainers import TRAINING
from ruler.neighbors import find_neighbors
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import METHODS, ShortRetrainingSettings, unlearn

TABLES = ("adult", "magic", "phoneme")
SHARES = (0.05, 0.1, 0.2, 0.4)
CHECKPOINTS = (0.5, 0.25, 0.1)
DISTILLED = 0.2
KL_WEIGHT, TEMPERATURE = 0.9, 2.0
PUBLISHED = ("fine_tuning", "scrub", "salun")


@dataclass(frozen=True)
class Setup:
    """How models of a dataset are made.

    Args:
        sizes: Records of each side.
        settings: Of originals and oracles.
        faster: The rate of short trainings from fresh weights, as a multiple of the usual one.
        short: Share of the epochs from a checkpoint.
        architecture: Key of `MODELS`; None for the usual one.
        shares: Of the epochs, that short trainings from fresh weights take.
    """

    sizes: Mapping[str, int]
    settings: TrainingSettings
    faster: float = 1.0
    short: float = 0.1
    architecture: str | None = None
    shares: tuple[float, ...] = SHARES


_IMAGES = {"forget": 500, "retain": 7500, "held_out": 1500, "validation": 500, "test": 1500}
_FACES = {"forget": 300, "retain": 1800, "held_out": 900, "validation": 300, "test": 900}
_SHORTER = (0.05, 0.1, 0.15, 0.2, 0.4)  # 0.15 and what starting takes on a GPU stay below a fifth of the cost
_RESNET = replace(TRAINING["resnet18"], precision="bfloat16")
SETUPS = {
    **{
        name: Setup(
            {"forget": 300, "retain": 900, "held_out": 900, "validation": 300, "test": 1000},
            TrainingSettings(epochs=60, learning_rate=3e-3, batch_size=64),
            faster=10 / 3,
        )
        for name in (*TABLES, "electricity", "bank_marketing")
    },
    "cifar10": Setup(_IMAGES, _RESNET, 2.0, 0.15, "resnet18", _SHORTER),
    "lfw": Setup(_FACES, replace(_RESNET, epochs=40, augment="crop"), 2.0, 0.15, "resnet18", _SHORTER),
}


class Run:
    """One original with all that is made of it."""

    def __init__(self, dataset: str, memory: str, draw: int, device: str) -> None:
        setup = SETUPS[dataset]
        self._setup, self._draw, self._device = setup, draw, device
        self.world: World = make_world(
            dataset, memory, draw, setup.sizes, setup.settings, architecture=setup.architecture, device=device
        )
        self._checkpoints: dict[float, dict[str, torch.Tensor]] = {}

        def keep(epoch: int, model: nn.Module) -> None:
            for share in CHECKPOINTS:
                if epoch == max(1, round(share * setup.settings.epochs)):
                    self._checkpoints[share] = copy.deepcopy(model.state_dict())

        self.original = self.world.train(self.world.both, draw, on_epoch=keep)
        began_s = self.tell_s()
        self.oracle = self.world.train(self.world.sides["retain"], draw)
        self.retraining_s = self.tell_s() - began_s
        self._readings = {"original": self.world.read(self.original), "oracle": self.world.read(self.oracle)}
        self.retain = self.world.pair(self.world.sides["retain"])
        self.forget = self.world.pair(self.world.sides["forget"])

    def tell_s(self) -> float:
        """The time, of this process's work on a CPU; elsewhere when the device is done."""
        if self._device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()

    def list_models(self) -> dict[str, Callable[[], nn.Module]]:
        """How each model is made, by name."""
        found: dict[str, Callable[[], nn.Module]] = {
            "original": lambda: self.original,
            "retrain": lambda: self.world.train(self.world.sides["retain"], 10_000 + self._draw),
        }
        found |= {f"fresh-{share:g}": partial(self._retrain_shortly, share) for share in self._setup.shares}
        found |= {f"rewound-{share:g}": partial(self._rewind, share) for share in CHECKPOINTS}
        found["tested"] = partial(self._retrain_shortly, self._setup.short, has_checkpoints=True)
        found["distilled"] = partial(self._distil, 0.0)
        found["filtered"] = partial(self._distil, 0.5)
        return found | {method: partial(self._unlearn, method) for method in PUBLISHED}

    def _shorten(self, share: float, **changes: Any) -> dict[str, Any]:
        """The usual settings in a share of the epochs."""
        usual = self.world.settings
        own = {entry.name: getattr(usual, entry.name) for entry in fields(TrainingSettings) if entry.init}
        return own | {"epochs": max(1, round(share * usual.epochs)), "loss_bound": 1e30} | changes

    def _retrain_shortly(self, share: float, *, has_checkpoints: bool = False) -> nn.Module:
        rate = self.world.settings.learning_rate * self._setup.faster
        changes: dict[str, Any] = {"learning_rate": rate, "schedule": "one_cycle", "seed": 20_000 + self._draw}
        if has_checkpoints:
            changes["checkpoints"] = tuple(self._checkpoints[one] for one in CHECKPOINTS)
            changes["validation"] = self.world.pair(self.world.sides["validation"])
        settings = ShortRetrainingSettings(**self._shorten(share, **changes))
        return self._apply("short_retraining", settings)

    def _rewind(self, share: float) -> nn.Module:
        student = copy.deepcopy(self.original)
        student.load_state_dict(self._checkpoints[share])
        settings = TrainingSettings(**self._shorten(self._setup.short, schedule="cosine"))
        with seeded(self._draw):
            optimize(student, cross_entropy, {"retain": self.retain}, settings, seed=self._draw)
        return student.eval()

    def _distil(self, share_dropped: float) -> nn.Module:
        """A fresh student that learns the original's answers, but labels alone where forget records are near."""
        teacher, n_classes = self.original.eval(), self.world.n_classes
        is_far = np.ones(len(self.retain[1]), dtype=bool)
        if share_dropped:
            rows, sides = self._readings["original"].rows, self.world.sides
            found = find_neighbors(rows[sides["retain"]], rows[sides["forget"]], k=5)
            nearest = found.similarity.mean(axis=1)
            is_far = nearest <= np.quantile(nearest, 1 - share_dropped)
        marked = self.retain[1] + n_classes * torch.from_numpy(is_far).to(self._device).long()

        def objective(student: nn.Module, batch: Any) -> torch.Tensor:
            inputs, labels = batch
            weight = KL_WEIGHT * (labels >= n_classes)
            logits = student(inputs).float()
            with torch.no_grad():
                answers = teacher(inputs).float()
            own = functional.log_softmax(logits / TEMPERATURE, dim=1)
            theirs = functional.softmax(answers / TEMPERATURE, dim=1)
            apart = TEMPERATURE**2 * functional.kl_div(own, theirs, reduction="none").sum(dim=1)
            wrong = functional.cross_entropy(logits, labels % n_classes, reduction="none")
            loss: torch.Tensor = (weight * apart + (1 - weight) * wrong).mean()
            return loss

        rate = self.world.settings.learning_rate * self._setup.faster
        settings = TrainingSettings(**self._shorten(DISTILLED, learning_rate=rate, schedule="one_cycle"))
        with seeded(20_000 + self._draw):
            student = self.world.build()
            optimize(student, objective, {"retain": (self.retain[0], marked)}, settings, seed=self._draw)
        return student.eval()

    def _unlearn(self, method: str) -> nn.Module:
        settings: Any = METHODS[method].settings
        usual = self.world.settings
        chosen = settings(batch_size=usual.batch_size, loss_bound=1e30, precision=usual.precision)
        return self._apply(method, chosen)

    def _apply(self, method: str, settings: Any) -> nn.Module:
        return unlearn(method, self.original, forget=self.forget, retain=self.retain, settings=settings).eval()

    def measure(self, name: str, make: Callable[[], nn.Module]) -> dict[str, Any]:
        """Make a model, audit it, and tell what it cost and keeps."""
        began_s = self.tell_s()
        model = make()
        took_s = self.tell_s() - began_s
        reading = self.world.read(model)
        is_right = reading.logits.argmax(1) == self.world.labels
        row = {"cost": took_s / self.retraining_s, "test_accuracy": float(is_right[self.world.sides["test"]].mean())}
        return row | self.world.measure_skill(reading) | self._audit(reading)

    def _audit(self, reading: Reading) -> dict[str, Any]:
        report = self.world.audit(reading, [self._readings["oracle"]], self._readings["original"])
        deciding = {name: one for name, one in report.metrics.items() if OWN[name].decides}
        found: dict[str, Any] = {"verdict": report.verdict, "reason": report.reason}
        found["is_clear"] = all(one.verdict == "erased" for one in deciding.values())
        found |= {f"{name}_auc": one.effect for name, one in deciding.items()} | list_remaining(report)
        if report.damage is not None:
            found |= {"damage_skill": report.damage.skill, "damage_similarity": report.damage.similarity}
        return found


def main() -> None:
    """Train and audit until everything is done or the time is over; tell what was found if asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks frontier")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=TABLES, choices=tuple(SETUPS))
    parser.add_argument("--memory", nargs="+", default=["true", "planted"], choices=("true", "planted"))
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--csv", type=Path, help="where all numbers go, one row per model")
    parser.add_argument("--write", type=Path, help="a page whose table and figure are made anew from the CSV file")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + options.seconds
    runs = [(d, m, n) for n in range(options.draws) for d in options.data for m in options.memory]
    whole = [run_models(*run, options.device, options.out, ends_s) for run in runs]
    print(f"{sum(whole)} of {len(whole)} runs are whole")
    if options.csv is not None:
        from benchmarks.frontier_tables import keep_rows, write_page

        keep_rows(options.out, options.csv)
        if options.write is not None:
            write_page(options.csv, options.write)


def run_models(dataset: str, memory: str, draw: int, device: str, folder: Path, ends_s: float) -> bool:
    """Make and audit the models that the run's file lacks; returns whether it is whole."""
    path = folder / f"{dataset}-{memory}-{draw}.jsonl"
    done = {row["model"] for row in read_rows(path)}
    n_models = 2 + len(SETUPS[dataset].shares) + len(CHECKPOINTS) + 3 + len(PUBLISHED)
    if len(done) == n_models:
        return True
    if time.monotonic() > ends_s:
        return False
    run = Run(dataset, memory, draw, device)
    for name, make in run.list_models().items():
        if name in done:
            continue
        if time.monotonic() > ends_s:
            return False
        row = {"data": dataset, "memory": memory, "draw": draw, "model": name, **run.measure(name, make)}
        add_row(path, row)
        print(f"{path.stem} {name}: {row['verdict']}, cost {row['cost']:.2f}", flush=True)
    return True
