"""`ruler audit`: somebody's embeddings or models -> a verdict, a report and an exit status."""

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ruler.cli.executors import choose_cluster
from ruler.core.errors import InputError

if TYPE_CHECKING:
    from ruler.auditing.findings import Report
    from ruler.auditing.settings import AuditSettings
    from ruler.cli.audit_config import AuditConfig
    from ruler.core.cluster import ClusterSettings
    from ruler.neighbors.blocks import Workers

EXAMPLE = (
    "Example: ruler audit --unlearned unlearned --oracle oracle --original original --out report, "
    "or: ruler audit audit.toml --out report"
)
_EXIT_OF = {"erased": 0, "residual": 1, "displaced": 1, "damaged": 1, "invalid": 2, "inconclusive": 3}
_SIDES = ("forget", "retain", "held_out")
_DEVICES = ("cpu", "cuda", "mps", "xpu")
_OLD_OPTION = re.compile(r"--(unlearned|oracle|original)-(forget|retain|held-out)(=.*)?")


class AuditCommand(TyperCommand):
    """Tells users of the nine options that named one file each what to write instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse the old options, then parse."""
        for old in filter(None, map(_OLD_OPTION.fullmatch, args)):
            model, side = old[1], old[2]
            raise InputError(
                f"embeddings must be given as --{model} DIR, one folder per model; got the old --{model}-{side}. "
                f"Put the file into that folder as {side.replace('-', '_')}.npy (or .npz, .parquet, .safetensors, .pt)."
            )
        return super().parse_args(ctx, args)


def audit(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file that names models, checkpoints and data, or embeddings.")
    ] = None,
    unlearned: Annotated[
        Path | None, typer.Option(help="Folder with the unlearned model's embeddings: forget.*, retain.*, held_out.*")
    ] = None,
    oracle: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="<path>",
            help="The same for a model never trained on the forget records; repeat it for several seeds.",
        ),
    ] = None,
    original: Annotated[Path | None, typer.Option(help="The same for the model before unlearning.")] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Whose record it is: .csv or .parquet with a column group, .npy or .npz.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Error rate of every test, by default 0.05.")] = None,
    margin: Annotated[
        float | None, typer.Option(help="Largest distance of an AUC from 0.5 that counts as erased, by default 0.1.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random draw, by default 0.")] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<str>",
            help="With models in a TOML file: the layer to read; repeat it for several, or say all.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Where models run and neighbours are searched, such as cuda.")
    ] = None,
    n_reference: Annotated[
        int | None,
        typer.Option(help="Rank M4 among this many retain records, drawn at random, instead of all: for millions."),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="Who searches neighbours: local, this process, or ray, a cluster (docs/cluster.md).")
    ] = "local",
    job_cpus: Annotated[int | None, typer.Option(help="With ray: cores per job, by default 1.")] = None,
    job_gpus: Annotated[float | None, typer.Option(help="With ray: share of a GPU per job, by default none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("ruler-audit-report"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of the summary.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing but errors; the report is still saved.")
    ] = False,
    allow_inconclusive: Annotated[
        bool, typer.Option("--allow-inconclusive", help="End with 0, not 3, if the verdict is inconclusive.")
    ] = False,
) -> None:
    """Has a model forgotten? Compare its forget records with held-out ones, an oracle and the original.

    A folder of embeddings holds forget.*, retain.* and, if you have them,
    held_out.* (.npy .npz .parquet .safetensors .pt), the same records in the
    same order for every model; a sub-folder of .npy, .parquet or .safetensors
    shards is one matrix and may be larger than memory. Labels, losses, groups
    and strata may be in the files or, for .npy, beside them, such as
    forget_losses.npy. Nothing in them is executed.

    A TOML file may instead name models and data: transformers folders with a
    CSV of texts, a folder of images or a Hugging Face dataset on disk for each
    side, or a function that builds the model, checkpoints and data. The
    function, "module:function", is looked for beside that file first. Importing
    its module runs its code: name only what you trust.

    docs/tutorial.md has a complete example of each.

    Exit status: 0 erased, 1 residual, displaced or damaged, 2 misuse or invalid
    evidence, 3 inconclusive, 70 an error of RULER itself.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder; got the file {out}. Choose another name.")
    if as_json and quiet:
        raise InputError("--json must not be used with --quiet; got both. Leave one of them out.")
    if config is not None and (unlearned or oracle or original or groups):
        raise InputError(f"files must be named either in {config} or by options; got both. Leave one of them out.")
    if config is None and unlearned is None:
        raise InputError(
            "audit must be given a TOML file, or --unlearned and a folder of embeddings; got neither. "
            "See: ruler audit --help"
        )
    if device is not None and device.partition(":")[0] not in _DEVICES:
        raise InputError(f"--device must be one of {', '.join(_DEVICES)}; got {device!r}. Example: --device cuda:0")
    given = {"alpha": alpha, "margin": margin, "seed": seed, "n_reference": n_reference}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    cluster = choose_cluster(executor, job_cpus=job_cpus, job_gpus=job_gpus)
    with _searching(cluster, "cpu" if job_gpus is None else "cuda", device) as workers:
        if config is not None:
            report = _audit_config(config, options, layer, device, workers, quiet=quiet)
        else:
            if layer:
                raise InputError(
                    "--layer must be used with models in a TOML file; got embeddings, read at one layer. Leave it out."
                )
            from ruler.auditing.settings import AuditSettings

            models = {"unlearned": unlearned, "oracle": oracle or None, "original": original}
            report = _audit_folders(models, groups, AuditSettings(**options), workers, quiet=quiet)
    _tell(report, out, as_json=as_json, quiet=quiet)
    is_allowed = allow_inconclusive and report.verdict == "inconclusive"
    raise typer.Exit(0 if is_allowed else _EXIT_OF[report.verdict])


@contextmanager
def _searching(cluster: "ClusterSettings | None", job_device: str, device: str | None) -> "Iterator[Workers | None]":
    """Neighbours are searched here, on the device that was named, or by a cluster's workers."""
    with ExitStack() as stack:
        if cluster is None:
            if device is not None:
                from ruler.neighbors.search import searching_on

                stack.enter_context(searching_on(device))
            yield None
            return
        from ruler.core.cluster import connect, list_needs
        from ruler.neighbors.blocks import searching_by_blocks
        from ruler.neighbors.ray import find_workers, run_on_ray

        needs = list_needs(cluster, job_device)
        ray = stack.enter_context(connect(max(os.cpu_count() or 1, cluster.job_cpus)))
        workers = find_workers(ray, needs)
        stack.enter_context(searching_by_blocks(run_on_ray(ray, needs), workers=workers))
        yield workers


def _audit_config(
    path: Path,
    options: dict[str, Any],
    layers: list[str] | None,
    device: str | None,
    workers: "Workers | None",
    *,
    quiet: bool,
) -> "Report":
    from ruler.cli.audit_config import read_config

    config = read_config(path)
    settings, folder = replace(config.make_settings(), **options), path.parent
    groups = None if config.groups is None else _locate(config.groups, folder)
    if config.embeddings is None:
        return _audit_models(config, groups, settings, folder, layers, device, quiet=quiet)
    if layers:
        raise InputError(f"--layer must be used with [models]; got [embeddings] in {path}. Leave it out.")
    named = config.embeddings.model_dump(exclude={"strata"}, exclude_none=True)
    folders = {name: _locate(value, folder) for name, value in named.items()}
    return _audit_folders(folders, groups, settings, workers, strata=config.embeddings.strata, quiet=quiet)


def _audit_folders(
    folders: Mapping[str, Any],
    groups: Path | None,
    settings: "AuditSettings",
    workers: "Workers | None",
    *,
    strata: str | None = None,
    quiet: bool,
) -> "Report":
    from ruler.auditing.audit import audit as audit_embeddings
    from ruler.cli.audit_records import load_groups
    from ruler.embeddings.folders import load_model_folder

    load = partial(load_model_folder, strata=strata)
    models: dict[str, Any] = {name: _each(load, place) for name, place in folders.items() if place is not None}
    labels = None if groups is None else load_groups(groups)
    with _planned(models, settings, workers, quiet=quiet):
        report = audit_embeddings(**models, groups=labels, settings=settings)
    return _note_files(report, {**folders, "groups": groups})


@contextmanager
def _planned(
    models: dict[str, Any], settings: "AuditSettings", workers: "Workers | None", *, quiet: bool
) -> Iterator[None]:
    """Around a long audit: what it will take, before it starts, and what it took."""
    from ruler.auditing.plan import is_worth_planning, plan_audit

    if quiet or not is_worth_planning(models["unlearned"]):
        yield
        return
    plan = plan_audit(**models, settings=settings, workers=workers)
    typer.echo(plan, err=True)
    started_s = time.monotonic()
    yield
    took_s = time.monotonic() - started_s
    share = "" if math.isnan(plan.elapsed_s) else f", {took_s / plan.elapsed_s:.2f} of the plan"
    typer.echo(f"took: {took_s / 60:.3g} min{share}\n", err=True)


def _audit_models(
    config: "AuditConfig",
    groups: Path | None,
    settings: "AuditSettings",
    folder: Path,
    layers: list[str] | None,
    device: str | None,
    *,
    quiet: bool,
) -> "Report":
    from ruler.auditing.models import audit_models
    from ruler.cli.audit_folders import FolderRecords, load_folder
    from ruler.cli.audit_models import find_factory, importable, load_model
    from ruler.cli.audit_records import load_groups, load_records

    assert config.models is not None
    assert config.data is not None
    named = config.models.model_dump(include={"unlearned", "oracle", "original"}, exclude_none=True)
    checkpoints = {name: _locate(value, folder) for name, value in named.items()}
    labels = None if groups is None else load_groups(groups)
    with importable(folder):  # also while models run: their code may import late
        if config.models.factory is None:
            models = {name: _each(partial(load_folder, name=name), path) for name, path in checkpoints.items()}
            columns = {"label": config.data.label, "strata": config.data.strata}
            load_side = FolderRecords(checkpoints["unlearned"], models["unlearned"], columns).load
        else:
            factory = find_factory(config.models.factory, "models.factory")
            models = {name: _each(partial(load_model, factory, name=name), path) for name, path in checkpoints.items()}
            load_side = load_records
        files = {side: getattr(config.data, side) for side in _SIDES}
        paths = {side: _locate(name, folder) for side, name in files.items() if name is not None}
        if config.data.factory is None:
            records = {side: load_side(path) for side, path in paths.items()}
        else:
            records = _check_records(find_factory(config.data.factory, "data.factory")())
        found = records.pop("groups", None)
        if found is not None and labels is not None:
            raise InputError("groups must come from data.factory or from a file; got both. Leave one of them out.")
        chosen = layers or config.models.layer
        report = audit_models(
            **models,
            **records,
            layer=chosen[0] if isinstance(chosen, list) and len(chosen) == 1 else chosen,
            groups=labels if found is None else found,
            device=device,
            progress=not quiet,
            settings=settings,
        )
    return _note_files(report, {**checkpoints, **paths, "groups": groups})


def _each(load: Callable[[Path], Any], place: Any) -> Any:
    """One model, or one per path of a list."""
    return [load(one) for one in place] if isinstance(place, list) else load(place)


def _check_records(content: Any) -> dict[str, Any]:
    """What data.factory returned, by side, without sides that are None."""
    rule = "data.factory must return a dict with forget and retain, and perhaps held_out and groups"
    if not isinstance(content, dict):
        raise InputError(f"{rule}; got {type(content).__name__}.")
    if "test" in content:
        raise InputError(f"{rule}; got test. Rename it to held_out.")
    if not {"forget", "retain"} <= content.keys() <= {*_SIDES, "groups"}:
        raise InputError(f"{rule}; got {', '.join(map(str, content))}.")
    return {name: value for name, value in content.items() if value is not None}


def _locate(name: str | list[str], folder: Path) -> Any:
    return [_locate(one, folder) for one in name] if isinstance(name, list) else folder / Path(name).expanduser()


def _note_files(report: "Report", files: Mapping[str, Path | Sequence[Path] | None]) -> "Report":
    noted: dict[str, str] = {}
    for name, place in files.items():
        if isinstance(place, Path):
            noted[name] = str(place)
        for number, one in enumerate(place if isinstance(place, list) else [], 1):
            noted[name if number == 1 else f"{name} {number}"] = str(one)
    return replace(report, provenance={**report.provenance, "files": noted})


def _tell(report: "Report", out: Path, *, as_json: bool, quiet: bool) -> None:
    try:
        folder = report.save(out)
    except OSError as error:
        raise InputError(f"--out must be a folder that can be written; got {out} ({error.strerror}).") from error
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    elif not quiet:
        typer.echo(str(report))
        typer.echo(f"\nreport: {folder / 'report.html'}")
