"""`ruler reproduce`: from raw data to the paper's tables and figures, beside the published numbers."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from ruler.cli import MISUSE
from ruler.cli.options import PlainCommand, choose_cluster, resumable
from ruler.core.errors import WriteError
from ruler.core.text import show_text
from ruler.experiment.executors import EXECUTORS, RayExecutor
from ruler.experiment.run import (
    RESULTS_FILE,
    RunSettings,
    Summary,
    export_models,
    list_exported,
    run_studies,
    show_run,
)
from ruler.experiment.store import load_results
from ruler.experiment.studies import choose_studies, choose_variant, narrow_studies, shrink_studies

EXAMPLE = "Example: ruler reproduce primary --datasets breast_cancer heart_disease --seeds 3 --out results"
_SPREAD = ("--datasets", "--methods", "--forget-fractions")
_SHOWN_FAILURES = 10


class SpreadCommand(PlainCommand):
    """Lets an option take several values: ``--datasets adult magic`` means ``--datasets adult --datasets magic``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option's name before each further value."""
        spread: list[str] = []
        name = None
        for word in args:
            if word.startswith("-"):
                name = word if word in _SPREAD else None
            elif name is not None and spread[-1] != name:
                spread.append(name)
            spread.append(word)
        return super().parse_args(ctx, spread)


COMMAND = SpreadCommand


def reproduce(
    study: Annotated[
        str,
        typer.Argument(
            help="primary, bad-teacher, oracle-null, minibatch, learning-rate, forget-seeds, large-tabular, images, "
            "clinical, faces, all of these, or tofu; or a TOML file with studies of your own."
        ),
    ],
    datasets: Annotated[list[str] | None, typer.Option(help="Only these datasets (see `ruler data list`).")] = None,
    seeds: Annotated[int | None, typer.Option(help="Only training seeds 0 to N-1.")] = None,
    methods: Annotated[list[str] | None, typer.Option(help="Only these unlearning methods.")] = None,
    forget_fractions: Annotated[list[float] | None, typer.Option(help="These shares instead, such as 0.05.")] = None,
    executor: Annotated[
        str, typer.Option(help="local (processes here) or ray (the cluster that RAY_ADDRESS names, or a local one).")
    ] = "local",
    jobs: Annotated[int | None, typer.Option(help="Worker processes; one per core by default, few on a GPU.")] = None,
    job_cpus: Annotated[int | None, typer.Option(help="With ray: cores per job, by default 1.")] = None,
    job_gpus: Annotated[float | None, typer.Option(help="With ray: share of a GPU per job, by default 0.25.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    engine: Annotated[
        str | None,
        typer.Option(
            help="Of a tabular study: ensemble (many models at once; default in full batches) or protocol (the paper's "
            "loop, model by model, on cpu; for mini batches and checkpoints)."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Of a diagnostic study: float32 (default) or bfloat16, faster for ResNet-18 on a GPU."),
    ] = None,
    checkpoints: Annotated[Path | None, typer.Option(help="Use the published models in this folder.")] = None,
    export_checkpoints: Annotated[
        Path | None, typer.Option(help="Write the protocol's models under the published names.")
    ] = None,
    language_model: Annotated[
        str | None,
        typer.Option(
            help="For clinical and tofu: transformers folder or hub name; by default Bio_ClinicalBERT and SmolLM2, "
            "or the packaged ones."
        ),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="A diagnostic study on few records for one epoch: does it run here?")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for results, tables and figures.")] = Path("ruler-results"),
) -> None:
    """Run a study of the paper and set its tables and figures beside the published numbers.

    The same command again resumes: finished cells are never run twice.
    """
    cluster = choose_cluster(executor, EXECUTORS, job_cpus=job_cpus, job_gpus=job_gpus)
    small = narrow_studies(
        shrink_studies(choose_studies(study)) if smoke else choose_studies(study),
        datasets=datasets or (),
        n_seeds=seeds,
        methods=methods or (),
        forget_fractions=forget_fractions or (),
    )
    studies = choose_variant(
        small,
        engine=engine,
        device=device,
        is_imported=checkpoints is not None,
        is_exported=export_checkpoints is not None,
        precision=precision,
    )
    if export_checkpoints is not None:
        list_exported(studies)  # or hours would pass before it is refused
    settings = RunSettings(
        out=out,
        executor=EXECUTORS[executor](n_jobs=jobs) if cluster is None else RayExecutor(jobs, cluster),
        device=device,
        checkpoints=checkpoints,
        language_model=language_model,
    )
    try:
        with resumable(out):
            with show_run() as show:
                summary = run_studies(studies, settings, on_progress=show)
            if export_checkpoints is not None:
                export_models(studies, settings, export_checkpoints)
                typer.echo(f"models: {export_checkpoints}")
            results = load_results(out / RESULTS_FILE)
            if len(results):
                from ruler.paper.report import write_all  # takes seconds to load

                write_all(results, out)
    except WriteError as error:
        raise WriteError(f"{error} Finished cells are kept: the same command resumes.") from error
    _tell(summary, out)


def _tell(summary: Summary, out: Path) -> None:
    took = timedelta(seconds=round(summary.elapsed_s))
    typer.echo(f"{summary.n_done:,} of {summary.n_cells:,} cells, {summary.n_new:,} new, in {took}: {out}")
    if not summary.failures:
        return
    typer.echo(f"{len(summary.failures)} cells failed; run the same command again to retry them:", err=True)
    for cell, error in list(summary.failures.items())[:_SHOWN_FAILURES]:
        place = f"{cell.study} {cell.dataset} {cell.method} {cell.forget_fraction:g} seed {cell.seed}"
        typer.echo(f"  {place}: {show_text(error)}", err=True)
    raise typer.Exit(MISUSE)
