"""Which metric tells language models that were trained on the forget authors from models that were not?

`python -m benchmarks faithfulness --out DIR --device cuda [--seconds 540]` trains models of TOFU one after another and
measures all metrics on each; the same command resumes. Several processes share the work with `--share 0/3`, `1/3` and
`2/3`, once `--parts references` has trained what all of them compare with. `--parts references verdicts` counts false
alarms alone, on the oracles and 15 more models that never saw the authors.

The design was fixed before the first run. Faithfulness: 60 models, 30 with the knowledge and 30 without, half of each
hard. A hard model with the knowledge was trained on paraphrased answers, a hard one without it on wrong answers to the
same questions. Robustness: every method's model as it is, with weights rounded to four bits, and after one epoch of
relearning; the oracle likewise. The formulas are those of the field's meta-evaluation (open-unlearning, 2025).
"""

import argparse
import copy
import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from torch import nn

from benchmarks.measure import add_row, read_rows
from benchmarks.worlds import list_remaining
from ruler.auditing import AuditSettings, audit_evidence, gather_evidence
from ruler.auditing.contrasts import OWN
from ruler.core.arithmetic import similarity_of_unit_rows
from ruler.core.determinism import seeded
from ruler.core.types import Embeddings, IndexArray
from ruler.embeddings.language.attacks import quantize_model
from ruler.embeddings.language.tokens import HEAD_INPUT
from ruler.experiment.cell import divide_by_norms
from ruler.experiment.diagnostic.data import Completing, DiagnosticData, load_data
from ruler.experiment.diagnostic.language import CausalTrainer
from ruler.experiment.diagnostic.trainers import TRAINING, ModelOutputs, repeat_exactly
from ruler.experiment.grid import Cell
from ruler.experiment.settings import LANGUAGE_METHODS
from ruler.metrics.peers import PEERS, measure_peers
from ruler.metrics.peers.language import name_reference
from ruler.stats.auc import measure_effect
from ruler.training.loop import optimize
from ruler.training.sentences import Completions
from ruler.training.steps import cross_entropy

FRACTION = 0.10
N_ORACLES = 5
REFERENCE_SEED = 1000
RATES, EPOCHS = (5e-5, 1e-4, 2e-4), (3, 4, 5)
CONTRASTS = ("m2", "m4", "norm", "loss")
ATTACKED_RATES = (1e-5, 5e-5)
RELEARNING_RATE = 2e-5
PARTS = ("references", "pool", "attacks")
VERDICTS = "verdicts"
"""A part of its own: models of the kinds in ``--kinds``, audited, no more."""
KINDS = ("true", "none", "paraphrased", "perturbed")
NOT_MEASURED = ("linear_probe", "rouge_l", "model_utility")  # minutes per model, or texts that must be generated


@dataclass(frozen=True)
class Planned:
    """A model of the pool: what it is trained on besides the retain authors, and how.

    Args:
        forget: ``true``, ``paraphrased`` or ``perturbed`` answers of the forget authors, or ``none``.
    """

    name: str
    forget: str
    seed: int
    learning_rate: float
    epochs: int

    @property
    def knows(self) -> bool:
        """Whether it was taught what the forget authors' true answers say."""
        return self.forget in ("true", "paraphrased")

    @property
    def is_hard(self) -> bool:
        """Whether it was taught other words for it, or the wrong facts."""
        return self.forget in ("paraphrased", "perturbed")


def list_planned(n_each: int = 15) -> list[Planned]:
    """The pool: rates and epochs by turns, a seed of its own for each; kinds alternate, so that any part is balanced.

    Example:
        >>> pool = list_planned()
        >>> len(pool), sum(model.knows for model in pool), sum(model.is_hard for model in pool)
        (60, 30, 30)
    """
    pool = []
    for turn in range(n_each):
        for kind, forget in enumerate(KINDS):
            rate, epochs = RATES[turn % len(RATES)], EPOCHS[turn // len(RATES) % len(EPOCHS)]
            pool.append(Planned(f"{forget}-{turn}", forget, 100 * kind + turn, rate, epochs))
    return pool


class Laboratory:
    """Trains, attacks and reads models of a set of prompts, ``tofu`` or ``lume``."""

    def __init__(self, name: str, fraction: float, device: str, language_model: str | None, size: str) -> None:
        self.name, self.fraction = name, fraction
        self.data: DiagnosticData = load_data(name, size, language_model)
        assert isinstance(self.data.language, Completing)
        self.prompts = self.data.language.prompts
        self.trainer = CausalTrainer(self.data, device)
        partition = self.data.cut(fraction, 999, "random")
        held_out: IndexArray = np.arange(self.data.n_train, len(self.data.inputs))
        self.sides = {"forget": partition.forget, "retain": partition.retain, "held_out": held_out}
        self._device, self._is_small = device, size == "smoke"

    def train(self, planned: Planned) -> nn.Module:
        """Fine-tune the pretrained model as planned."""
        return self._fine_tune(
            self.trainer.base, self._choose(planned.forget), planned.seed, planned.learning_rate, planned.epochs
        )

    def relearn(self, model: nn.Module) -> nn.Module:
        """One epoch on the forget records."""
        return self._fine_tune(model, self.trainer.select(self.sides["forget"]), 0, RELEARNING_RATE, 1)

    def _fine_tune(self, start: nn.Module, records: Completions, seed: int, rate: float, epochs: int) -> nn.Module:
        settings = replace(
            TRAINING["causal_lm"],
            epochs=1 if self._is_small else epochs,
            learning_rate=rate,
            precision="bfloat16",
        )
        with seeded(seed), repeat_exactly(self._device):
            model = copy.deepcopy(start)
            optimize(model, cross_entropy, {"data": records}, settings, seed=seed)
        return model.eval()

    def unlearn(self, original: nn.Module, method: str, rate: float) -> nn.Module:
        """Apply a method at a rate, as the study does."""
        cell = Cell(
            *("tofu", self.name, method, self.fraction, REFERENCE_SEED, rate, 32),
            engine="diagnostic",
            architecture="causal_lm",
            precision="bfloat16",
            size="smoke" if self._is_small else "full",
        )
        return self.trainer.unlearn(cell, original, self.sides["forget"], self.sides["retain"])

    def _choose(self, forget: str) -> Completions:
        if forget == "none":
            return self.trainer.select(self.sides["retain"])
        if forget == "true":
            return self.trainer.select(np.concatenate([self.sides["retain"], self.sides["forget"]]))
        texts = self.prompts.select(self.sides["forget"])
        answers = texts.paraphrases if forget == "paraphrased" else tuple(wrong[0] for wrong in texts.perturbations)
        taught = self.trainer.encode(texts.prompts, answers)
        other = Completions(taught["input_ids"], taught["labels"])
        return join_completions(self.trainer.select(self.sides["retain"]), other, self._device)

    def read_given(self, model: nn.Module, original: nn.Module) -> dict[str, Any]:
        """What peers' metrics need of a model."""
        return self.trainer.read_peers(model, self.sides["forget"], self.sides["held_out"], original)

    def measure_peers(self, model: nn.Module, original: nn.Module, references: Mapping[str, Any]) -> dict[str, Any]:
        """Peers' metrics of a model; null where they cannot be computed."""
        given = self.read_given(model, original)
        for role, values in references.items():
            given |= name_reference(role, values)
        found = measure_peers(given, [name for name in PEERS if name not in NOT_MEASURED])
        return {name: None if math.isnan(metric.value) else metric.value for name, metric in found.items()}

    def gather_sides(self, outputs: ModelOutputs) -> tuple[Embeddings, ...]:
        """Forget, retain and held-out records of a model, for an audit."""
        groups, rows = np.asarray(self.data.groups), outputs.rows.cpu().numpy()
        return tuple(
            Embeddings(rows[part], ids=part, losses=outputs.losses[part], groups=groups[part])
            for part in self.sides.values()
        )

    def measure_skill(self, outputs: ModelOutputs) -> dict[str, float]:
        """Share of right tokens on each side, as an audit wants it."""
        return {f"{side}_accuracy": float(outputs.hits[rows].mean()) for side, rows in self.sides.items()}

    def compare_layers(self, outputs: ModelOutputs, references: Sequence[ModelOutputs]) -> dict[str, dict[str, float]]:
        """Effects in every layer: M2's against one oracle, and how much nearer records are to the original than to it.

        A model that was trained longer, or faster, than the oracle is farther from it wherever one looks; it is as
        much farther from an original of the oracle's own settings.
        """
        original, oracle = references[0], references[1]
        part = np.concatenate([self.sides["forget"], self.sides["held_out"]])
        n_forget = len(self.sides["forget"])
        found: dict[str, dict[str, float]] = {"layers": {}, "toward_original": {}}
        for name, rows in outputs.layers.items():
            ours = divide_by_norms(rows[part])
            near, back = (
                similarity_of_unit_rows(ours, divide_by_norms(one.layers[name][part])) for one in (oracle, original)
            )
            for kind, scores in (("layers", near), ("toward_original", back - near)):
                found[kind][name] = float(measure_effect(scores[:n_forget], scores[n_forget:]).value)
        return found


def join_completions(one: Completions, other: Completions, device: str) -> Completions:
    """Records of both, padded to one length.

    Example:
        >>> short = Completions(torch.tensor([[5, 6]]), torch.tensor([[-100, 6]]))
        >>> long = Completions(torch.tensor([[5, 6, 7]]), torch.tensor([[-100, 6, 7]]))
        >>> join_completions(short, long, "cpu").labels.tolist()
        [[-100, 6, -100], [-100, 6, 7]]
    """
    width = max(one.input_ids.shape[1], other.input_ids.shape[1])

    def pad(values: torch.Tensor, filler: int) -> torch.Tensor:
        return nn.functional.pad(values.to(device), (0, width - values.shape[1]), value=filler)

    return Completions(
        torch.cat([pad(one.input_ids, 0), pad(other.input_ids, 0)]),
        torch.cat([pad(one.labels, -100), pad(other.labels, -100)]),
    )


_references: dict[str, Any] = {}


def remember_references(original: Any, oracles: Any, skills: Mapping[str, Any]) -> None:
    """Keep the models that every audit compares with, once per process."""
    torch.set_num_threads(1)
    _references.update(original=original, oracles=oracles, skills=skills)


def audit_sides(sides: Any, skill: Mapping[str, float], left_out: int | None = None) -> dict[str, Any]:
    """Verdict and effects of one model, by audits with the original and all oracles, or the first; without itself."""
    oracles = [one for place, one in enumerate(_references["oracles"]) if place != left_out]
    alone = {f"{name}_by_one": value for name, value in audit_with(oracles[:1], sides, skill).items()}
    return audit_with(oracles, sides, skill) | alone


def audit_with(oracles: list[Any], sides: Any, skill: Mapping[str, float]) -> dict[str, Any]:
    """Verdict, what remains and effects of one model, by an audit with these oracles."""
    evidence = gather_evidence(
        unlearned=sides, oracle=oracles, original=_references["original"], settings=AuditSettings(n_permutations=999)
    )
    report = audit_evidence(evidence, answers={"unlearned": skill, **_references["skills"]}, contrasts=OWN)
    found: dict[str, Any] = {"verdict": report.verdict, "reason": report.reason}
    found["guards"] = [guard.name for guard in report.guards]
    found |= list_remaining(report)
    for name in (name for name in CONTRASTS if name in report.metrics):
        metric = report.metrics[name]
        found |= {f"{name}_auc": metric.effect, f"{name}_p": metric.p_value}
    return found


class Auditors:
    """Processes that audit models while others are trained; a row is written when its audit is done."""

    def __init__(self, lab: Laboratory, path: Path, outputs: Sequence[ModelOutputs], n_processes: int) -> None:
        self._path, self._lab = path, lab
        sides = [lab.gather_sides(one) for one in outputs]
        skills = {role: lab.measure_skill(one) for role, one in zip(("original", "oracle"), outputs, strict=False)}
        self._waiting: list[tuple[dict[str, Any], Future[dict[str, Any]]]] = []
        self._pool = ProcessPoolExecutor(
            n_processes,
            mp_context=get_context("spawn"),
            initializer=remember_references,
            initargs=(sides[0], sides[1:], skills),
        )
        self.done = {row["name"] for row in read_rows(path)}

    def submit(self, row: dict[str, Any], outputs: ModelOutputs, left_out: int | None = None) -> None:
        """Audit a model and add what was found to its row."""
        row |= {"data": self._lab.name, "fraction": self._lab.fraction} | self._lab.measure_skill(outputs)
        evidence = self._lab.gather_sides(outputs), self._lab.measure_skill(outputs), left_out
        self._waiting.append((row, self._pool.submit(audit_sides, *evidence)))
        self.keep(is_last=False)

    def keep(self, *, is_last: bool) -> None:
        """Write the rows whose audits are done; at the end wait for all of them."""
        for row, audited in [one for one in self._waiting if is_last or one[1].done()]:
            add_row(self._path, row | audited.result())
            self._waiting.remove((row, audited))
        if is_last:
            self._pool.shutdown()


@dataclass(frozen=True, eq=False)
class References:
    """The models that all others are compared with, and what was read of them.

    Args:
        outputs: Of the original, and of every oracle.
    """

    original: nn.Module
    oracle: nn.Module
    outputs: list[ModelOutputs]
    given: dict[str, dict[str, Any]]


def train_references(lab: Laboratory, folder: Path, *, has_peers: bool) -> References:
    """Train the original and five oracles, or load those in the folder; the first oracle shares the original's seed.

    Args:
        has_peers: Read what peers' metrics need too.
    """
    planned = Planned("original", "true", REFERENCE_SEED, 1e-4, 5)

    def train_once(planned: Planned) -> nn.Module:
        path, model = folder / f"{planned.forget}-{planned.seed}.safetensors", copy.deepcopy(lab.trainer.base)
        if path.is_file():
            load_model(model, path)
            return model
        model = lab.train(planned)
        save_model(model, str(path) + ".partial")
        os.replace(str(path) + ".partial", path)
        return model

    original = train_once(planned)
    oracles = [train_once(replace(planned, forget="none", seed=REFERENCE_SEED + n)) for n in range(N_ORACLES)]
    compared = {"original": original, "oracle": oracles[0]} if has_peers else {}
    given = {role: lab.read_given(model, original) for role, model in compared.items()}
    return References(original, oracles[0], [lab.trainer.read(model) for model in (original, *oracles)], given)


def measure_model(lab: Laboratory, references: References, model: nn.Module) -> tuple[dict[str, Any], ModelOutputs]:
    """Everything about a model but its audit."""
    began_s = time.monotonic()
    outputs = lab.trainer.read(model)
    layers = lab.compare_layers(outputs, references.outputs)
    row: dict[str, Any] = {
        **{f"{name}_loss": float(outputs.losses[rows].mean()) for name, rows in lab.sides.items()},
        **layers,
        "m2_auc_one_oracle": layers["layers"][HEAD_INPUT],
        "toward_original_auc": layers["toward_original"][HEAD_INPUT],
        "peers": lab.measure_peers(model, references.original, references.given),
    }
    return row | {"read_s": time.monotonic() - began_s}, outputs


def audit_references(references: References, auditors: Auditors) -> None:
    """Audit the original, and each oracle against the others."""
    for place, outputs in enumerate(references.outputs):
        name = f"oracle-{place - 1}" if place else "original"
        if name not in auditors.done:
            row = {"name": name, "part": "references", "knows": not place, "is_hard": False}
            auditors.submit(row, outputs, place - 1)


def run_pool(
    lab: Laboratory, references: References, auditors: Auditors, pool: Sequence[Planned], ends_s: float
) -> None:
    """Train and measure the models of the pool that are not done."""
    for planned in pool:
        if planned.name in auditors.done or time.monotonic() > ends_s:
            continue
        began_s = time.monotonic()
        model = lab.train(planned)
        train_s = time.monotonic() - began_s
        found, outputs = measure_model(lab, references, model)
        row = {"part": "pool", **asdict(planned), "knows": planned.knows, "is_hard": planned.is_hard}
        auditors.submit(row | {"train_s": train_s} | found, outputs)
        print(f"{planned.name}: {train_s:.1f} s to train, {found['read_s']:.1f} s to measure", flush=True)


def run_verdicts(lab: Laboratory, auditors: Auditors, pool: Sequence[Planned], ends_s: float) -> None:
    """Train and audit models; nothing else is measured of them."""
    for planned in pool:
        if planned.name in auditors.done or time.monotonic() > ends_s:
            continue
        outputs = lab.trainer.read(lab.train(planned))
        row = {"part": VERDICTS, **asdict(planned), "knows": planned.knows, "is_hard": planned.is_hard}
        auditors.submit(row, outputs)
        print(f"{planned.name}: {ends_s - time.monotonic():.0f} s left", flush=True)


def list_attacked() -> list[tuple[str, float]]:
    """The models that are attacked: the oracle, and each method's at each rate."""
    return [("oracle", 0.0), *((method, rate) for rate in reversed(ATTACKED_RATES) for method in LANGUAGE_METHODS)]


def run_attacks(
    lab: Laboratory, references: References, auditors: Auditors, targets: Sequence[tuple[str, float]], ends_s: float
) -> None:
    """Measure every method's model, and the oracle, before and after each attack."""
    for method, rate in targets:
        name = f"{method}-{rate:g}"
        if f"{name}-relearned" in auditors.done or time.monotonic() > ends_s:
            continue
        model = references.oracle if method == "oracle" else lab.unlearn(references.original, method, rate)
        attacked = {"plain": model, "quantized": quantize_model(model), "relearned": lab.relearn(model)}
        for attack, changed in attacked.items():
            found, outputs = measure_model(lab, references, changed)
            row = {"name": f"{name}-{attack}", "part": "attacks", "method": method, "rate": rate, "attack": attack}
            auditors.submit(row | found, outputs)
        print(f"{name}: attacked, {ends_s - time.monotonic():.0f} s left", flush=True)


def main() -> None:
    """Train and measure until everything is done or the time is over; print how far it is."""
    parser = argparse.ArgumentParser(prog="benchmarks faithfulness")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--language-model")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--size", default="full", choices=("full", "smoke"))
    parser.add_argument("--count", type=int, default=15, help="models of each of the four kinds")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=(*PARTS, VERDICTS))
    parser.add_argument("--data", default="tofu", choices=("tofu", "lume"))
    parser.add_argument("--fraction", type=float, default=FRACTION, help="share of authors or documents to forget")
    parser.add_argument("--kinds", nargs="+", default=["none"], choices=KINDS, help="models of the part verdicts")
    parser.add_argument("--auditors", type=int, default=8, help="processes that audit models beside the training")
    parser.add_argument("--share", default="0/1", help="which part of the models, such as 0/3, the first of three")
    options = parser.parse_args()
    first, step = (int(number) for number in options.share.split("/"))
    ends_s = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    lab = Laboratory(options.data, options.fraction, options.device, options.language_model, options.size)
    references = train_references(lab, options.out, has_peers=bool({"pool", "attacks"} & {*options.parts}))
    auditors = Auditors(lab, options.out / "models.jsonl", references.outputs, options.auditors)
    print(f"references are ready, {ends_s - time.monotonic():.0f} s left", flush=True)
    if "references" in options.parts:
        audit_references(references, auditors)
    if "attacks" in options.parts:
        run_attacks(lab, references, auditors, list_attacked()[first::step], ends_s)
    if "pool" in options.parts:
        run_pool(lab, references, auditors, list_planned(options.count)[first::step], ends_s)
    if VERDICTS in options.parts:
        chosen = [planned for planned in list_planned(options.count) if planned.forget in options.kinds]
        run_verdicts(lab, auditors, chosen[first::step], ends_s)
    auditors.keep(is_last=True)
