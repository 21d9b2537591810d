"""Every method, every metric, one table: `ruler.compare`, and what it leaves on disk."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically, writing_atomically
from ruler.experiment.compare.settings import CompareSettings, read_settings
from ruler.experiment.executors import InlineExecutor, LocalExecutor
from ruler.experiment.run import RESULTS_FILE, RunSettings, Summary, gather_inputs, run_cells, show_run
from ruler.experiment.store import load_results
from ruler.paper.compare.page import render_page
from ruler.paper.compare.table import REPORTS, gather_runs, list_choices, list_missing, summarise, to_csv, to_latex

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare", "run_comparison"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a comparison found.

    Args:
        runs: One row per method, its settings, seed and draw of a forget set: verdict, by which contrasts the audit
            could see the forget records at all (``seen``), where its report lies in ``out`` if it was saved, what
            remains in what the model says and what its layers hold, effects, accuracies, cost beside retraining, peers'
            metrics.
        table: One row per method and its settings: means over runs, with 95% intervals (``_low``, ``_high``).
        missing: One row per number that has no value: method, metric, reason, and in how many runs.
        choices: One row per run and candidate, where settings were chosen: its score in the rehearsal, smaller is
            better, and whether it was chosen.
        settings: What was compared.
        summary: How many cells were run, and which failed.
        out: Folder that holds the results, ``compare.html``, ``compare.csv``, ``compare.tex`` and ``compare.parquet``.
    """

    runs: "pd.DataFrame"
    table: "pd.DataFrame"
    missing: "pd.DataFrame"
    choices: "pd.DataFrame"
    settings: CompareSettings
    summary: Summary
    out: Path

    def __str__(self) -> str:
        rows = self.table[["title", "verdicts", "outputs_remaining", "layers_remaining", "held_out_accuracy", "cost"]]
        return str(rows.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="n/a"))


def compare(
    dataset: str | os.PathLike[str],
    *,
    target: str | None = None,
    ids: str | None = None,
    groups: str | None = None,
    prompt: str | None = None,
    completion: str | None = None,
    text: str | None = None,
    image_size: Sequence[int] | None = None,
    forget: float | str = 0.1,
    draws: int = 1,
    methods: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    choose: bool = False,
    metrics: Sequence[str] | None = None,
    seeds: int = 3,
    architecture: str | None = None,
    language_model: str | os.PathLike[str] | None = None,
    training: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] = "ruler-compare",
    jobs: int | None = None,
    device: str = "cpu",
    reports: bool = False,
    progress: bool = False,
) -> Comparison:
    """Which method makes this data forgotten, at what price, and what do all metrics say of it?

    For each seed an original is trained on all training records, an oracle on the retain records alone, and every
    method is applied to the original. Each model is audited with held-out records as the control, and measured by
    peers' metrics. Retraining from another seed is among the methods: the reference at cost 1. Running it again
    resumes: what is in ``out`` is not run twice.

    Args:
        dataset: Key of a dataset (``"adult"``), or a path to data of your own: a table (.csv, .csv.gz, .parquet),
            prompts (.jsonl or a table), texts (a table), or images (a folder with one sub-folder per class, or an
            .npz file).
        target: Column with the classes; for a table.
        ids: Column with the records' names, kept out of the features; for a table or prompts.
        groups: Column that says whose record it is, kept out of the features; for a table or prompts. Whole groups are
            forgotten.
        prompt, completion: Columns of prompts, whose presence makes a table one of prompts; these names by default.
        text: Column of texts; a row is a document, which is forgotten as a whole.
        image_size: Height and width to resize the images of a folder to.
        forget: Share of the training records drawn at random; ``"class == LABEL"``; ``"group == NAME"``; or
            ``"COLUMN == VALUE"``.
        draws: How many forget sets are drawn.
        methods: Names, or names with settings; a list as a setting tries each value. None takes all for this kind of
            model.
        choose: Choose the settings of every method, from its lists or its own grid, by a rehearsal on retain records.
        metrics: Peers' metrics by name; None takes all that models of this kind give what they need.
        seeds: Number of originals.
        architecture: ``tabular_mlp`` (default for tables), ``residual_mlp`` or ``ft_transformer``; ``small_cnn``
            (default for images) or ``resnet18``; or ``module:function``, your own, which is imported and called with
            (n_features, n_classes), or (channels, height, width, n_classes) for images.
        language_model: Folder or hub name of the pretrained model, for texts and prompts.
        training: Fields of `TrainingSettings` that differ from the architecture's own.
        out: Folder for the results.
        jobs: Worker processes; None takes one per core. 1 stays in this process, which knows methods and metrics that
            this session has registered.
        device: ``cpu`` or ``cuda``.
        reports: Save the report of every audit that is run, too; the page links to them.
        progress: Show on stderr how far it is.

    Raises:
        UnknownNameError: No such dataset, column, class, method, metric or setting.
        InputError: A value that breaks a rule.
        WriteError: The folder cannot be written, or another run is using it.

    Example:
        >>> import tempfile
        >>> found = compare(
        ...     "breast_cancer", methods=["ssd"], metrics=["cka"], seeds=1, jobs=1, out=tempfile.mkdtemp()
        ... )
        >>> found.table["method"].tolist(), found.table["cka"].between(0, 1).all().item()
        (['original', 'ssd'], True)
    """
    settings = CompareSettings(
        os.fspath(dataset),
        target=target,
        ids=ids,
        groups=groups,
        prompt=prompt,
        completion=completion,
        text=text,
        image_size=None if image_size is None else [*image_size],
        forget=forget,
        draws=draws,
        methods={name: dict(one) for name, one in methods.items()}
        if isinstance(methods, Mapping)
        else None
        if methods is None
        else list(methods),
        choose=choose,
        metrics=None if metrics is None else list(metrics),
        seeds=seeds,
        training=dict(training or {}),
        architecture=architecture,
        language_model=None if language_model is None else os.fspath(language_model),
    )
    return run_comparison(settings, Path(out), jobs=jobs, device=device, reports=reports, progress=progress)


def run_comparison(
    settings: CompareSettings | Path,
    out: Path,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    reports: bool = False,
    progress: bool = False,
) -> Comparison:
    """Run what the settings, or a TOML file with them, ask for; see `compare`."""
    wanted = read_settings(settings) if isinstance(settings, Path) else settings
    if wanted.path is None:
        gather_inputs([wanted.dataset], wanted.language_model)
    data = wanted.load()
    if ":" in wanted.model:
        from ruler.experiment.compare.trainers import build_model  # needs torch

        build_model(wanted.model, data, wanted.folder)  # what is wrong with it is said once, before anything is trained
    cells = wanted.list_cells(data.n_train)
    executor = InlineExecutor() if jobs == 1 else LocalExecutor(n_jobs=jobs)
    run = RunSettings(
        out=out,
        executor=executor,
        device=device,
        table=wanted.path and wanted.path.resolve(),
        reports=(out / REPORTS).resolve() if reports else None,
        language_model=wanted.language_model,
        code=wanted.folder.resolve(),
    )
    with show_run() if progress else nullcontext(lambda now: None) as show:
        summary = run_cells(cells, run, on_progress=show)
    runs = gather_runs(load_results(out / RESULTS_FILE), cells, summary.failures)
    runs["report"] = [place if (out / place / "report.html").is_file() else "" for place in runs["report"]]
    metrics = wanted.list_metrics()
    found = Comparison(runs, summarise(runs, metrics), list_missing(runs), list_choices(runs), wanted, summary, out)
    write_atomically(out / "compare.csv", to_csv(found.table, found.missing))
    if len(found.choices):
        write_atomically(out / "choices.csv", found.choices.to_csv(index=False))
    write_atomically(out / "compare.tex", to_latex(found.table, wanted))
    write_atomically(out / "compare.html", render_page(found.runs, found.table, found.missing, found.choices, wanted))
    with writing_atomically(out / "compare.parquet") as stream:
        runs.to_parquet(stream, index=False)
    return found
