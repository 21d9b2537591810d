"""Which metric tells classifiers that were trained on the forget records from classifiers that were not?

`python -m benchmarks meta --out DIR` trains models one after another and measures all metrics on each; the same
command resumes. `python -m benchmarks meta --out DIR --csv docs/bench/which_metric.csv --write docs/which_metric.md`
tells what was found.

The design was fixed before the first run.

Worlds: Adult, Magic, Phoneme (the paper's perceptron, trained until it fits) and CIFAR-10 (8 by 8 pixels, small CNN),
each with true labels and with planted ones: every record that is not a retain one carries a wrong label. Two random
draws of each, of 200 forget, 600 retain, 600 held-out and 600 reserve records. Original and oracles: the usual
length. Peers' metrics of states read at most 200 records per side.

Pool: per draw 12 models with seeds of their own, 0.75, 1 and 1.25 times the usual length by turns, three of each
kind:
- "with" was trained on retain and forget records;
- "faint" likewise, hard: for a quarter of the length, or ("part") on a third of the forget records, by turns;
- "without" was trained on the retain records;
- "alike", hard, on retain records and, by turns, on each forget record's nearest reserve record ("neighbours"), or on
  the forget records' inputs with a wrong label ("relabelled"). The second kind saw the inputs, so an alarm of the
  audit there is no false one; it counts as without the knowledge, as in the field's meta-evaluation of language
  models.

Faithfulness: AUC of the first two kinds against the last two within each draw, with the sign that the metric's own
table states; mean over draws, Student's interval over draws within worlds. Longer training: three models of retain
records per draw at twice the length; AUC of these against "without", 0.5 if length does not look like knowledge.
Robustness, first draw of each world: three methods' models and the oracle, before and after one epoch of relearning
the forget records, R = min(D_oracle / D_unlearned, 1), and after half a training on retain records, Q = min(after /
before, 1) of 1 - knowledge, on a scale on which the median "without" is 0 and the median "with" is 1. Models that
keep under 80% of the accuracy are left out. False alarms: a verdict of residual, displaced or damaged for "without"
or "neighbours". Wrongly cleared: "erased" for "with" or "faint". For numbers with a null: share of "without" models
on the side of knowledge.

Three models of one world were timed first, and the plan was cut from three draws and six methods to these numbers.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.measure import add_row, read_rows
from benchmarks.worlds import SIDES, Reading, list_remaining, make_world, move_labels
from ruler.auditing.contrasts import OWN
from ruler.core.determinism import seeded
from ruler.core.types import IndexArray
from ruler.metrics.outputs import accuracy, losses, membership_inference
from ruler.metrics.peers import PEERS
from ruler.neighbors import find_neighbors
from ruler.stats.auc import measure_effect
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import METHODS, unlearn
from ruler.unlearning.distillation import make_random_teacher

DATASETS = ("adult", "magic", "phoneme", "cifar10")
WORLDS = tuple(f"{dataset}-{memory}" for dataset in DATASETS for memory in ("true", "planted"))
SIZES = {"forget": 200, "retain": 600, "held_out": 600, "reserve": 600}
TABLES = TrainingSettings(epochs=300, learning_rate=5e-3)
IMAGES = TrainingSettings(epochs=30, learning_rate=1e-3, batch_size=64)
RELEARNING = TrainingSettings(epochs=10, learning_rate=1e-3, batch_size=16, loss_bound=1e30)
N_DRAWS, N_TURNS, N_ORACLES, N_ORIGINALS = 2, 3, 5, 3
MOST_STATES = 200
LENGTHS = (0.75, 1.0, 1.25)
LONGER = 2.0
KINDS = ("with", "without", "faint", "alike")
ATTACKED = ("fine_tuning", "scrub", "salun")
MEASURED = (
    *("zrf", "js_divergence", "activation_distance", "completeness", "tug_of_war", "nomus", "aus", "rmia", "lira"),
    *("weight_distance", "relearn_time", "anamnesis_index", "cka", "cka_debiased", "linear_probe", "procrustes"),
    *("neighbor_overlap", "information_difference"),
)
"""Peers' metrics that one classifier can be measured by; U-LiRA and KLoM judge a method by many models."""


@dataclass(frozen=True)
class Planned:
    """A model of the pool: its kind, how it differs within the kind, its seed and its length of training."""

    name: str
    kind: str
    variant: str
    seed: int
    length: float


def list_planned(draw: int) -> list[Planned]:
    """The models of a draw; kinds alternate, so that any part is balanced.

    Example:
        >>> pool = list_planned(0)
        >>> len(pool), sum(model.kind in ("with", "faint") for model in pool)
        (15, 6)
    """
    variants = {"faint": ("short", "part"), "alike": ("neighbours", "relabelled")}
    pool = []
    for turn in range(N_TURNS):
        for number, kind in enumerate((*KINDS, "longer")):
            variant = variants.get(kind, ("",) * 2)[(turn + draw) % 2]
            length = LONGER if kind == "longer" else LENGTHS[turn] * (0.25 if variant == "short" else 1.0)
            pool.append(Planned(f"{draw}-{kind}-{turn}", kind, variant, 1000 * draw + 100 * number + turn, length))
    return pool


class Laboratory:
    """Trains and measures the models of one draw of a world; references are made when first asked for."""

    def __init__(self, name: str, draw: int) -> None:
        dataset, _, memory = name.partition("-")
        is_table = dataset != "cifar10"
        self.world = make_world(
            dataset, memory, draw, SIZES, TABLES if is_table else IMAGES, shrink=1 if is_table else 4
        )
        self._draw = draw
        self.oracle = cache(lambda: self.world.train(self.world.sides["retain"], 10_000 + draw))
        self.original = cache(lambda: self.world.train(self.world.both, 10_000 + draw))
        self.references = cache(self._read_references)
        self._known = cache(self._know)

    def train(self, planned: Planned) -> nn.Module:
        """Train a model of the pool."""
        world, rng = self.world, np.random.default_rng(planned.seed)
        forget, retain = world.sides["forget"], world.sides["retain"]
        extra, labels = np.empty(0, dtype=np.int64), world.labels.copy()
        if planned.kind in ("with", "faint"):
            extra = forget if planned.variant != "part" else np.sort(rng.permutation(forget)[: len(forget) // 3])
        elif planned.variant == "neighbours":
            extra = self._find_neighbours()
        elif planned.variant == "relabelled":
            extra = forget
            labels[forget] = move_labels(labels[forget], world.n_classes, rng)
        return world.train(np.concatenate([retain, extra]), planned.seed, length=planned.length, labels=labels)

    def _find_neighbours(self) -> IndexArray:
        """The reserve records that lie nearest to the forget records, by their inputs."""
        flat = self.world.inputs.reshape(len(self.world.inputs), -1)
        reserve = self.world.sides["reserve"]
        found = find_neighbors(flat[self.world.sides["forget"]], flat[reserve])
        return np.unique(reserve[found.index[:, 0]])

    def _read_references(self) -> dict[str, list[Reading]]:
        world, draw = self.world, self._draw
        retain = world.sides["retain"]
        oracles = [self.oracle(), *(world.train(retain, 11_000 + 10 * draw + n) for n in range(1, N_ORACLES))]
        originals = [self.original(), *(world.train(world.both, 12_000 + 10 * draw + n) for n in range(1, N_ORIGINALS))]
        return {"oracles": [world.read(one) for one in oracles], "originals": [world.read(one) for one in originals]}

    def _know(self) -> dict[str, Any]:
        """What peers' metrics need of the references."""
        found = self.references()
        given: dict[str, Any] = {}
        for role, model in (("oracle", self.oracle()), ("original", self.original())):
            own = self._give(model, found[f"{role}s"][0])
            given |= {f"{role}_{name}": value for name, value in own.items()}
        for role, readings in found.items():
            for side in ("forget", "held_out"):
                given[f"{role}_{side}_predictions"] = [self.world.predict(one, side) for one in readings]
        fresh = make_random_teacher(self.original(), self._draw)
        given["random_forget_predictions"] = self.world.predict(self.world.read(fresh), "forget")
        return given

    def _give(self, model: nn.Module, reading: Reading) -> dict[str, Any]:
        world = self.world
        given: dict[str, Any] = {f"{side}_predictions": world.predict(reading, side) for side in SIDES}
        given |= {f"{side}_states": {"representation": reading.rows[world.sides[side][:MOST_STATES]]} for side in SIDES}
        given["weights"] = {name: value.detach().numpy() for name, value in model.named_parameters()}
        given["relearn_accuracies"] = self.relearn(model)[1]
        return given

    def relearn(self, model: nn.Module, epochs: int = RELEARNING.epochs) -> tuple[nn.Module, list[float]]:
        """The model after some epochs on the forget records, and its accuracy on them after 0, 1, 2, ... of them."""
        pair = self.world.pair(self.world.sides["forget"])
        student = copy.deepcopy(model)

        @torch.no_grad()
        def look() -> float:
            student.eval()
            right = float((student(pair[0]).argmax(1) == pair[1]).float().mean())
            student.train()
            return right

        found = [look()]
        with seeded(0):
            optimize(
                student,
                cross_entropy,
                {"data": pair},
                replace(RELEARNING, epochs=epochs),
                on_epoch=lambda epoch, loss: found.append(look()),
            )
        return student.eval(), found

    def train_on(self, model: nn.Module) -> nn.Module:
        """The model after half of a training on the retain records."""
        student = copy.deepcopy(model)
        settings = replace(self.world.settings, epochs=self.world.settings.epochs // 2)
        with seeded(0):
            optimize(student, cross_entropy, {"data": self.world.pair(self.world.sides["retain"])}, settings)
        return student.eval()

    def unlearn(self, method: str) -> nn.Module:
        """The original after a method with its defaults, in batches of 64."""
        settings: Any = METHODS[method].settings
        forget, retain = (self.world.pair(self.world.sides[side]) for side in ("forget", "retain"))
        chosen = settings(batch_size=64, loss_bound=1e30)
        return unlearn(method, self.original(), forget=forget, retain=retain, settings=chosen).eval()

    def measure(self, model: nn.Module, *, has_five: bool = True) -> dict[str, Any]:
        """All metrics of a model, and the verdicts with one oracle and with five."""
        reading = self.world.read(model)
        forget, held_out = (self.world.predict(reading, side) for side in ("forget", "held_out"))
        values: dict[str, float] = {
            **self.world.measure_skill(reading),
            "forget_loss": float(losses(forget).mean()),
            "accuracy_gap": accuracy(forget) - accuracy(held_out),
            "mia": membership_inference(forget, held_out),
            "loss_attack": 1 - measure_effect(losses(forget), losses(held_out)).value,
        }
        given = self._known() | self._give(model, reading)
        values |= {name: PEERS[name].measure(given).value for name in MEASURED}
        row: dict[str, Any] = {}
        for n_oracles in (1, N_ORACLES)[: 1 + has_five]:
            found, verdict, reason = self._audit(reading, n_oracles)
            values |= found
            row |= {f"verdict_{n_oracles}": verdict, f"reason_{n_oracles}": reason}
        return row | {"values": {name: round_or_none(value) for name, value in values.items()}}

    def _audit(self, reading: Reading, n_oracles: int) -> tuple[dict[str, float], str, str]:
        known = self.references()
        report = self.world.audit(reading, known["oracles"][:n_oracles], known["originals"][0])
        found: dict[str, float] = {}
        for name, metric in report.metrics.items():
            if n_oracles == 1:
                found[name] = metric.value
            if OWN[name].decides:
                found[f"{name}_auc_{n_oracles}"] = metric.effect
        parts = [part for name, one in report.metrics.items() if OWN[name].decides for part in one.parts.values()]
        found[f"audit_p_{n_oracles}"] = min((part.p_value for part in parts if part.p_value >= 0), default=math.nan)
        found |= {f"{name}_{n_oracles}": value for name, value in list_remaining(report).items()}
        return found, report.verdict, report.reason


def round_or_none(value: float) -> float | None:
    """Six digits; None where there is no number.

    Example:
        >>> round_or_none(1 / 3), round_or_none(math.nan)
        (0.333333, None)
    """
    return float(f"{value:.6g}") if math.isfinite(value) else None


Task = tuple[str, dict[str, Any], Callable[[], dict[str, Any]]]


def list_tasks(world: str, draw: int) -> list[Task]:
    """What is to be measured in a draw: name, facts, and the work itself."""
    lab = cache(lambda: Laboratory(world, draw))
    unlearned = cache(lambda method: lab().unlearn(method))

    def run_planned(planned: Planned) -> dict[str, Any]:
        return lab().measure(lab().train(planned), has_five=planned.kind != "longer")

    def run_attack(method: str, attack: str) -> dict[str, Any]:
        model = lab().oracle() if method == "oracle" else unlearned(method)
        if attack != "plain":
            model = lab().relearn(model, 1)[0] if attack == "relearned" else lab().train_on(model)
        return lab().measure(model, has_five=False)

    tasks: list[Task] = [
        (planned.name, {"part": "pool", **asdict(planned)}, partial(run_planned, planned))
        for planned in list_planned(draw)
    ]
    for method in ("oracle", *ATTACKED) if draw == 0 else ():
        for attack in ("plain", "relearned", "longer"):
            facts = {"part": "attacks", "kind": method, "variant": attack}
            tasks.append((f"{method}-{attack}", facts, partial(run_attack, method, attack)))
    return tasks


def run_world(world: str, part: str, path: Path, ends_s: float) -> bool:
    """Measure what the file lacks of a part; returns whether it is whole."""
    done = {(row["draw"], row["name"]) for row in read_rows(path)}
    for draw in range(N_DRAWS):
        for name, facts, work in list_tasks(world, draw):
            if facts["part"] != part or (draw, name) in done:
                continue
            if time.monotonic() > ends_s:
                return False
            began_s = time.process_time()
            row = {"world": world, "draw": draw, "name": name, **facts, **work()}
            row["cpu_s"] = round(time.process_time() - began_s, 2)
            add_row(path, row)
            print(f"{world} {name}: {row['cpu_s']} s, {row['verdict_1']}", flush=True)
    return True


def main() -> None:
    """Train and measure until everything is done or the time is over; tell what was found if asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks meta")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--worlds", nargs="+", default=WORLDS, choices=WORLDS)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--csv", type=Path, help="where all numbers go, one row per model")
    parser.add_argument("--write", type=Path, help="a page whose tables are made anew from the CSV file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    ends_s = time.monotonic() + options.seconds
    whole = [
        run_world(world, part, options.out / f"{world}.jsonl", ends_s)
        for part in ("pool", "attacks")
        for world in options.worlds
    ]
    print(f"{sum(whole)} of {len(whole)} parts are whole")
    if options.csv is not None:
        from benchmarks.meta_tables import keep_rows, write_tables

        keep_rows(options.out, options.csv)
        if options.write is not None:
            write_tables(options.csv, options.write)
