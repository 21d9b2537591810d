"""`ruler compare`: every method and metric on one dataset, as a page, a table and numbers."""

from pathlib import Path
from typing import Annotated

import typer

from ruler.cli import MISUSE
from ruler.cli.options import resumable
from ruler.core.errors import InputError
from ruler.core.text import show_text

EXAMPLE = "Example: ruler compare breast_cancer --seeds 3 --out compared"


def compare(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="A TOML file, a dataset (see `ruler data list`), or data of your own."),
    ],
    target: Annotated[str | None, typer.Option(help="Column with the classes, of a file of your own.")] = None,
    forget: Annotated[
        str | None, typer.Option(help="Share to forget, such as 0.1; 'class == LABEL' or 'COLUMN == VALUE'.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Only these methods, separated by commas.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Only these peers' metrics, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Training seeds; 3 by default.")] = None,
    choose: Annotated[
        bool, typer.Option("--choose", help="Choose each method's settings from its grid, on retain records alone.")
    ] = False,
    language_model: Annotated[str | None, typer.Option(help="Folder of the model, for texts or prompts.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Worker processes; by default one per core.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    reports: Annotated[
        bool, typer.Option("--reports", help="Save the report of every audit too, linked from the page.")
    ] = False,
    leaderboard: Annotated[
        bool, typer.Option("--leaderboard", help="One page over several comparisons: name their folders.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; ruler-compare, or ruler-leaderboard.")
    ] = None,
) -> None:
    """Compare unlearning methods on one dataset: verdicts, what remains, what is kept, cost, peers' metrics.

    The same command again resumes: what is finished is never run twice.
    """
    if leaderboard:
        from ruler.paper.compare.leaderboard import make_leaderboard

        typer.echo(make_leaderboard(sources, out or Path("ruler-leaderboard")))
        return
    from ruler.experiment.compare.settings import CompareSettings  # takes a second to load
    from ruler.paper.compare import run_comparison

    if len(sources) > 1:
        raise InputError(f"SOURCE must be one; got {len(sources)}. Give --leaderboard for a page over several folders.")
    (source,), out = sources, out or Path("ruler-compare")
    given = {
        "target": target,
        "forget": None if forget is None else _read_forget(forget),
        "methods": None if methods is None else [name.strip() for name in methods.split(",")],
        "metrics": None if metrics is None else [name.strip() for name in metrics.split(",")],
        "seeds": seeds,
        "choose": choose or None,
        "language_model": language_model,
    }
    given = {name: value for name, value in given.items() if value is not None}
    is_file = source.endswith(".toml")
    if is_file and given:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(f"{words} must be set in {source}; got it as an option.")
    settings = Path(source) if is_file else CompareSettings(source, **given)  # type: ignore[arg-type]
    with resumable(out):
        found = run_comparison(settings, out, jobs=jobs, device=device, reports=reports, progress=True)
    typer.echo(str(found))
    typer.echo(f"{found.summary.n_done} of {found.summary.n_cells} runs: {out / 'compare.html'}")
    for cell, reason in found.summary.failures.items():
        typer.echo(f"  {cell.method} seed {cell.seed}: {show_text(reason)}", err=True)
    if found.summary.failures:
        raise typer.Exit(MISUSE)


def _read_forget(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
