"""The same models trained and unlearned in float32 and in bfloat16: does the precision change what is concluded?"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.agreement import PrecisionRow, compare_pairs, describe_pairs, read_pairs, summarise
from benchmarks.measure import describe_machine, save_numbers
from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.data import DATASETS
from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.diagnostic.data import load_data
from ruler.experiment.grid import Job, list_cells
from ruler.experiment.settings import PRECISIONS
from ruler.experiment.studies import STUDIES
from ruler.unlearning import METHODS

FORGET_FRACTION = 0.05


@dataclass(frozen=True)
class PrecisionSettings:
    """Which models are made in both precisions.

    Args:
        device: ``cpu`` or ``cuda``.
        datasets: Keys of diagnostic datasets.
        architectures: Each dataset takes those that are made for it.
        methods: Of unlearning; the original is always compared.
        n_seeds: Seeds 0 to ``n_seeds - 1``; at least two, as their spread is the yardstick.
        size: ``smoke`` runs few records for an epoch.
        language_model: Folder of the pretrained model for texts; None looks for one.

    Example:
        >>> PrecisionSettings("cpu", ("higgs",), ("residual_mlp", "resnet18")).list_models()
        [('higgs', 'residual_mlp')]
    """

    device: str
    datasets: tuple[str, ...]
    architectures: tuple[str, ...]
    methods: tuple[str, ...] = ("neggrad_plus", "scrub", "fine_tuning")
    n_seeds: int = 3
    size: Literal["full", "smoke"] = "full"
    language_model: str | None = None

    def __post_init__(self) -> None:
        check_number(self.n_seeds, "seeds", minimum=2, is_whole=True)
        for method in self.methods:
            METHODS[method]
        if not self.list_models():
            fitting = "; ".join(f"{key}: {', '.join(DATASETS[key].architectures)}" for key in self.datasets)
            raise InputError(
                f"architectures must hold one that a dataset takes ({fitting}); got {', '.join(self.architectures)}."
            )

    def list_models(self) -> list[tuple[str, str]]:
        """Datasets with the architectures that are made for them."""
        pairs = [(dataset, model) for dataset in self.datasets for model in self.architectures]
        return [(dataset, model) for dataset, model in pairs if model in DATASETS[dataset].architectures]


DEFAULTS = {
    "cpu": PrecisionSettings("cpu", ("higgs",), ("tabular_mlp", "residual_mlp")),
    # NegGrad+ alone, which the findings on these models rest on, to keep the run to minutes.
    "cuda": PrecisionSettings(
        "cuda",
        ("higgs", "cifar10"),
        ("residual_mlp", "ft_transformer", "small_cnn", "resnet18"),
        methods=("neggrad_plus",),
        n_seeds=2,
    ),
}
"""Settings by device, where a caller leaves them open."""


def compare_precisions(
    settings: PrecisionSettings, *, on_job: Callable[[str], None] = lambda line: None
) -> Iterator[PrecisionRow]:
    """Does bfloat16 change what a diagnostic study concludes?

    Cells that differ in precision alone are run in turns: seeds, records, batches and all settings are the same, and
    representations are read in float32 from both.

    Args:
        on_job: Told of every job that ends.

    Returns:
        A row for each method on each model, from the second seed on and again after every further one: a run that is
        cut short has the seeds that it got to.

    Raises:
        InputError: The device is not there.
    """
    if settings.device != "cpu" and not load_optional("torch", "comparing precisions").cuda.is_available():
        raise InputError(f"device must be one that torch finds here; got {settings.device!r}. Choose cpu.")
    place = Workplace(device=settings.device, language_model=settings.language_model)
    for dataset, architecture in settings.list_models():
        load_data(dataset, settings.size, settings.language_model).distinct  # noqa: B018  # or the first job alone would bear it
        found: dict[str, dict[str, list[Outcome]]] = {}
        for seed in range(settings.n_seeds):
            for precision in PRECISIONS[:: 1 if seed % 2 else -1]:  # neither is always the one that warms up
                job = _make_job(settings, dataset, architecture, seed, precision)
                outcomes = list(run_job(job, place))
                on_job(f"{job.name} {precision}: {sum(outcome.elapsed_s for outcome in outcomes):.1f} s")
                for outcome in outcomes:
                    found.setdefault(outcome.cell.method, {}).setdefault(precision, []).append(outcome)
            if seed > 0:
                yield from (summarise(outcomes) for outcomes in found.values())


def _make_job(settings: PrecisionSettings, dataset: str, architecture: str, seed: int, precision: Any) -> Job:
    """The cells of one seed; the original first, so that its time holds the training of all models that are shared."""
    study = next(study for study in STUDIES.values() if study.engine == "diagnostic" and dataset in study.datasets)
    cells = list_cells(
        replace(
            study,
            datasets=(dataset,),
            architectures=(architecture,),
            methods=settings.methods,
            forget_fractions=(FORGET_FRACTION,),
            forget_choices=("random",),
            seeds=(seed,),
            precision=precision,
            size=settings.size,
        )
    )
    wanted = ("original", *settings.methods)
    return Job(tuple(sorted((cell for cell in cells if cell.method in wanted), key=lambda c: wanted.index(c.method))))


def _describe(settings: PrecisionSettings) -> dict[str, Any]:
    torch = load_optional("torch", "comparing precisions")
    machine = describe_machine(has_gpu=settings.device != "cpu") | {"threads": torch.get_num_threads()}
    if settings.device != "cpu":
        machine["float32 convolutions"] = "TF32" if torch.backends.cudnn.allow_tf32 else "full"
    return machine


def main() -> None:
    """`python -m benchmarks precision --json FILE`: float32 against bfloat16 on the diagnostic studies' models."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file, seed by seed")
    parser.add_argument(
        "--results", nargs="+", type=Path, help="run nothing: compare the precisions in these results files instead"
    )
    parser.add_argument("--device", choices=tuple(DEFAULTS), default="cpu")
    parser.add_argument("--datasets", nargs="+", help="diagnostic datasets")
    parser.add_argument("--architectures", nargs="+", help="each dataset takes those that are made for it")
    parser.add_argument("--methods", nargs="+", help="of unlearning; the original is always compared")
    parser.add_argument("--seeds", type=int, dest="n_seeds", help="at least 2")
    parser.add_argument("--language-model", help="folder of a transformers model, for texts")
    parser.add_argument("--size", choices=("full", "smoke"), help="smoke: few records, one epoch")
    options = vars(parser.parse_args())
    path, device, results = options.pop("json"), options.pop("device"), options.pop("results")
    if results is not None:
        recorded = read_pairs(results)
        save_numbers(path, {"machine": describe_pairs(recorded), "precision": compare_pairs(recorded)})
        return
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items() if v is not None}
    settings = replace(DEFAULTS[device], **widen(given))
    rows: dict[tuple[str, ...], PrecisionRow] = {}
    for row in compare_precisions(settings, on_job=lambda line: print(line, flush=True)):
        name = row.dataset, row.architecture, row.method
        rows[name] = row
        save_numbers(path, {"machine": _describe(settings), "precision": [*rows.values()]})
        print(f"{' '.join(name)}, {row.n_seeds} seeds: {row.conclusion}", flush=True)


def widen(given: dict[str, Any]) -> dict[str, Any]:
    """Datasets that are named without architectures take all that are made for them."""
    if "datasets" not in given or "architectures" in given:
        return given
    fitting = dict.fromkeys(model for key in given["datasets"] for model in DATASETS[key].architectures)
    return {**given, "architectures": tuple(fitting)}
