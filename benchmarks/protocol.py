"""The paper's protocol, spelled plainly and run one model after the other, against `ruler reproduce`.

The plain form is what the paper describes in the fewest lines of torch and NumPy, with all scores of every model. It
trains no model twice, asks a teacher once and reads every model once; similarities are products of whole matrices in
float32. Each form runs in processes of its own, on one thread, by turns; `benchmarks.pipelines` times whole studies on
several cores.
"""

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # its name everywhere

from benchmarks.measure import describe_machine
from ruler.core.errors import RulerError
from ruler.core.files import write_atomically
from ruler.core.types import Partition
from ruler.data import load_tabular, partition_rows, split

FRACTIONS = (0.01, 0.05, 0.10)
FORMS = ("plain", "protocol", "ensemble")
"""The plain form, and RULER's two engines."""

_N_SEEDS = 2
_N_TURNS = 3
_GALLERY = 2000
_TEMPERATURE = 2.0


@dataclass(frozen=True)
class ProtocolTiming:
    """Two seeds of one dataset, three fractions, four methods, from the first import to metrics.

    Args:
        plain_s, ruler_s: Processor seconds, the median of all turns.
        speedup: Ratio of these medians.
        lowest, highest: Ratio within a single turn.
        plain_mb, ruler_mb: Peak memory of a process.
    """

    dataset: str
    engine: str
    plain_s: float
    ruler_s: float
    speedup: float
    lowest: float
    highest: float
    plain_mb: float
    ruler_mb: float


def time_protocol(datasets: tuple[str, ...], n_turns: int = _N_TURNS) -> Iterator[ProtocolTiming]:
    """Time all forms on each dataset that is there; a dataset that is not is left out."""
    for name in datasets:
        try:
            load_tabular(name)
        except RulerError:
            continue
        turns = [{form: _measure(form, name) for form in FORMS} for _ in range(n_turns)]
        seconds, peaks_mb = ({form: [turn[form][i] for turn in turns] for form in FORMS} for i in range(2))
        middle_s = {form: statistics.median(values) for form, values in seconds.items()}
        for engine in FORMS[1:]:
            ratios = [plain / ours for plain, ours in zip(seconds["plain"], seconds[engine], strict=True)]
            yield ProtocolTiming(
                name,
                engine,
                middle_s["plain"],
                middle_s[engine],
                middle_s["plain"] / middle_s[engine],
                min(ratios),
                max(ratios),
                max(peaks_mb["plain"]),
                max(peaks_mb[engine]),
            )


def _measure(form: str, name: str) -> tuple[float, float]:
    """Processor seconds and peak MB of a form, its worker processes among them."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "protocol", "--form", form, "--datasets", name], env=os.environ | threads
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RulerError(f"form {form} must end well to be timed; got exit status {process.returncode} on {name}.")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _run_with_ruler(engine: Any, name: str) -> None:
    # Imported late: the plain form does not pay for loading these.
    from ruler.experiment.executors import LocalExecutor
    from ruler.experiment.run import RunSettings, run_studies
    from ruler.experiment.studies import STUDIES, narrow_studies

    studies = narrow_studies((STUDIES["primary"],), datasets=(name,), n_seeds=_N_SEEDS)
    studies = tuple(replace(study, engine=engine) for study in studies)
    with tempfile.TemporaryDirectory() as folder:
        run_studies(studies, RunSettings(Path(folder), executor=LocalExecutor(1), models=Path(folder) / "models"))


class PlainRow(NamedTuple):
    """The scores of one model and forget set; M1 to M3 where the model is compared."""

    seed: int
    fraction: float
    method: str
    m1: float
    m2: float
    m3: float
    m4: float
    mia: float
    forget_accuracy: float
    retain_accuracy: float
    test_accuracy: float


def run_plainly(name: str, seed: int) -> list[PlainRow]:
    """All scores of the models of one seed: at every fraction the oracle, the original and what methods make of it."""
    parts = split(load_tabular(name))
    x, y = torch.from_numpy(parts.train_features), torch.from_numpy(parts.train_target)
    test = torch.from_numpy(parts.test_features), torch.from_numpy(parts.test_target)
    original = _train(x, y, seed)
    rows = []
    for fraction in FRACTIONS:
        partition = partition_rows(len(x), fraction)
        oracle = _train(x[partition.retain], y[partition.retain], seed)
        models = {"oracle": oracle, "original": original}
        for method, (epochs, objective) in _METHODS.items():
            models[method] = _unlearn(original, epochs, objective, _pick(x, y, partition))
        units = {method: _embed(model, x) for method, model in models.items()}
        for method, model in models.items():
            near = _compare(units[method], units["oracle"], units["original"], partition)
            scores = *near, _rank(units[method], partition), *_predict(model, (x, y), test, partition)
            rows.append(PlainRow(seed, fraction, method, *scores))
    return rows


Records = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Answers = list[torch.Tensor]
"""What a teacher says of forget and retain records, softened; nothing for methods without one."""
Objective = Callable[[nn.Module, Answers, Records], torch.Tensor]


def _pick(x: torch.Tensor, y: torch.Tensor, partition: Partition) -> Records:
    return x[partition.forget], y[partition.forget], x[partition.retain], y[partition.retain]


def _train(x: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Dropout(0.2)),
        *(nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.2)),
        nn.Linear(128, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(50):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def _unlearn(original: nn.Module, epochs: int, objective: Objective, records: Records) -> nn.Module:
    torch.manual_seed(100)
    student = copy.deepcopy(original).train()
    optimizer = torch.optim.Adam(student.parameters(), lr=5e-4)
    answers: list[torch.Tensor] = []
    if objective is _scrub:
        with torch.no_grad():
            answers = [F.softmax(original(side) / _TEMPERATURE, dim=1) for side in (records[0], records[2])]
    for _ in range(epochs):
        optimizer.zero_grad()
        objective(student, answers, records).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return student.eval()


def _diverge(logits: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    return F.kl_div(F.log_softmax(logits / _TEMPERATURE, dim=1), answer, reduction="batchmean")


def _ascend(student: nn.Module, answers: Answers, records: Records) -> torch.Tensor:
    return -F.cross_entropy(student(records[0]), records[1])


def _fine_tune(student: nn.Module, answers: Answers, records: Records) -> torch.Tensor:
    return F.cross_entropy(student(records[2]), records[3])


def _neggrad_plus(student: nn.Module, answers: Answers, records: Records) -> torch.Tensor:
    return 0.6 * _fine_tune(student, answers, records) + 0.4 * _ascend(student, answers, records)


def _scrub(student: nn.Module, answers: Answers, records: Records) -> torch.Tensor:
    forget, _, retain, labels = records
    kept = student(retain)
    keep = F.cross_entropy(kept, labels) + _diverge(kept, answers[1])
    return 0.6 * keep - 0.4 * _diverge(student(forget), answers[0])


_METHODS: dict[str, tuple[int, Objective]] = {
    "gradient_ascent": (5, _ascend),
    "neggrad_plus": (10, _neggrad_plus),
    "fine_tuning": (10, _fine_tune),
    "scrub": (10, _scrub),
}


def _embed(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Unit representations in float32, (n, 128)."""
    with torch.no_grad():
        return F.normalize(model[:5](x), dim=1)  # type: ignore[index]


def _compare(
    units: torch.Tensor, of_oracle: torch.Tensor, of_original: torch.Tensor, partition: Partition
) -> tuple[float, float, float]:
    """M1, M2 and M3 of a model."""
    draw = np.random.RandomState(42).choice(len(partition.retain), min(500, len(partition.retain)), replace=False)
    forget = partition.forget
    similarity, before = (units * of_oracle).sum(dim=1).numpy(), (of_original * of_oracle).sum(dim=1).numpy()
    m1 = similarity[forget].mean()
    m2 = m1 - np.median(similarity[partition.retain[draw]])
    return float(m1), float(m2), float((similarity[forget] - before[forget]).mean())


def _rank(units: torch.Tensor, partition: Partition) -> float:
    """M4, from the matrix of all similarities."""
    gallery = units[partition.retain[:_GALLERY]]
    among = (gallery @ gallery.T).fill_diagonal_(-2.0).amax(dim=1).sort().values
    nearest = (units[partition.forget] @ gallery.T).amax(dim=1)
    return float(torch.searchsorted(among, nearest, right=True).float().mean() / len(gallery))


def _predict(
    model: nn.Module, train: tuple[torch.Tensor, ...], test: tuple[torch.Tensor, ...], partition: Partition
) -> tuple[float, float, float, float]:
    """Membership inference by the median loss, and accuracy on forget, retain and test records."""
    with torch.no_grad():
        logits, of_test = model(train[0]), model(test[0])
    is_right = logits.argmax(dim=1) == train[1]
    of_test_right = float((of_test.argmax(dim=1) == test[1]).float().mean())
    forget = partition.forget
    draw = np.random.RandomState(42).choice(len(test[1]), min(len(forget), len(test[1])), replace=False)
    members = F.cross_entropy(logits[forget], train[1][forget], reduction="none")
    others = F.cross_entropy(of_test[draw], test[1][draw], reduction="none")
    threshold = np.median(torch.cat([members, others]).numpy())
    mia = float((members < threshold).float().mean() + (others >= threshold).float().mean()) / 2
    of_forget, of_retain = (float(is_right[rows].float().mean()) for rows in (forget, partition.retain))
    return mia, of_forget, of_retain, of_test_right


def main() -> None:
    """`python -m benchmarks protocol --json FILE`: time all forms by turns; with --form, run one of them once."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--datasets", nargs="+", default=["breast_cancer", "phoneme", "magic"])
    parser.add_argument("--turns", type=int, default=_N_TURNS)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--whole", action="store_true", help="whole studies, see benchmarks.pipelines")
    parser.add_argument("--cores", type=int, default=2, help="of whole studies")
    parser.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.whole:
        from benchmarks.pipelines import save_pipelines

        save_pipelines(chosen.turns, chosen.cores, chosen.json)
        return
    if chosen.form == "plain":
        for seed in range(_N_SEEDS):
            run_plainly(chosen.datasets[0], seed)
    elif chosen.form:
        _run_with_ruler(chosen.form, chosen.datasets[0])
    else:
        timings: list[dict[str, Any]] = []
        for timing in time_protocol(tuple(chosen.datasets), chosen.turns):
            timings.append(asdict(timing))
            print(json.dumps(timings[-1]), flush=True)
            if chosen.json:
                numbers = {"machine": describe_machine(), "protocol": timings}
                write_atomically(chosen.json, json.dumps(numbers, indent=2) + "\n")
