"""`ruler audit`: somebody's files or models to a verdict and a report."""

import math
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ruler.cli.executors import choose_cluster
from ruler.core.errors import InputError

if TYPE_CHECKING:
    from ruler.auditing.findings import Report
    from ruler.auditing.settings import AuditSettings
    from ruler.cli.audit_config import AuditConfig
    from ruler.experiment.executors.cluster import ClusterSettings
    from ruler.neighbors.workers import Workers

EXAMPLE = (
    "Example: ruler audit --unlearned-forget u_forget.npy --unlearned-retain u_retain.npy "
    "--oracle-forget o_forget.npy --oracle-retain o_retain.npy --out report, or: ruler audit audit.toml --out report"
)
_EXIT_OF = {"erased": 0, "inconclusive": 0, "residual": 1, "displaced": 1, "invalid": 2}
_MODELS, _SIDES = ("unlearned", "oracle", "original"), ("forget", "retain", "held_out")


def audit(
    config: Annotated[
        Path | None, typer.Argument(help="TOML file that names models, checkpoints and data, or embeddings.")
    ] = None,
    unlearned_forget: Annotated[Path | None, typer.Option(help="Forget records in the unlearned model.")] = None,
    unlearned_retain: Annotated[Path | None, typer.Option(help="Retain records in the unlearned model.")] = None,
    unlearned_held_out: Annotated[
        Path | None, typer.Option(help="Records no model was trained on, in the unlearned model: the best control.")
    ] = None,
    oracle_forget: Annotated[
        Path | None, typer.Option(help="Forget records in the oracle, a model never trained on them.")
    ] = None,
    oracle_retain: Annotated[Path | None, typer.Option(help="Retain records in the oracle.")] = None,
    oracle_held_out: Annotated[Path | None, typer.Option(help="Held-out records in the oracle.")] = None,
    original_forget: Annotated[
        Path | None, typer.Option(help="Forget records in the original, the model before unlearning.")
    ] = None,
    original_retain: Annotated[Path | None, typer.Option(help="Retain records in the original.")] = None,
    original_held_out: Annotated[Path | None, typer.Option(help="Held-out records in the original.")] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Whose record it is: .csv or .parquet with a column group, .npy or .npz.")
    ] = None,
    n_reference: Annotated[
        int | None,
        typer.Option(help="Rank M4 among this many retain records, drawn at random, instead of all: for millions."),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="Who searches neighbours: local, this process, or ray, a cluster (docs/cluster.md).")
    ] = "local",
    job_cpus: Annotated[int | None, typer.Option(help="With ray: cores of a job, by default 1.")] = None,
    job_gpus: Annotated[float | None, typer.Option(help="With ray: share of a GPU of a job, by default none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("ruler-audit-report"),
) -> None:
    """Has a model forgotten? Compare its embeddings with controls, an oracle and the original.

    Embedding files (.npy .npz .parquet .safetensors .pt) hold the same records
    in the same order for every model. Nothing in them is executed. A folder of
    .npy, .parquet or .safetensors shards, sorted by name, is one matrix and may
    be larger than memory; long audits say first what they will take.

    A TOML file may instead name models and data: transformers folders with a
    CSV of texts, a folder of images or a Hugging Face dataset on disk for each
    side, or a function that builds the model, checkpoints and data. The
    function, "module:function", is looked for beside that file first. Importing
    its module runs its code: name only what you trust.

    docs/tutorial.md has a complete example of each.

    Exit status: 0 no residual found, 1 residual or displaced, 2 misuse or
    invalid evidence.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder; got the file {out}. Choose another name.")
    given = {
        "unlearned_forget": unlearned_forget,
        "unlearned_retain": unlearned_retain,
        "unlearned_held_out": unlearned_held_out,
        "oracle_forget": oracle_forget,
        "oracle_retain": oracle_retain,
        "oracle_held_out": oracle_held_out,
        "original_forget": original_forget,
        "original_retain": original_retain,
        "original_held_out": original_held_out,
    }
    files = {name: path for name, path in given.items() if path is not None}
    if config is None and not files:
        raise InputError(
            "audit must be given a TOML file, or at least --unlearned-forget and --unlearned-retain; got nothing. "
            "See: ruler audit --help"
        )
    cluster = choose_cluster(executor, job_cpus=job_cpus, job_gpus=job_gpus)
    with _searching(cluster, "cpu" if job_gpus is None else "cuda") as workers:
        if config is None:
            _check_pairs(files, _option)
            report = _audit_files(files, groups, _make_settings(n_reference), workers)
        elif files or groups or n_reference is not None:
            raise InputError(f"files must be named either in {config} or by options; got both. Leave one of them out.")
        else:
            report = _audit_config(config, workers)
    _tell(report, out)


@contextmanager
def _searching(cluster: "ClusterSettings | None", device: str) -> "Iterator[Workers | None]":
    if cluster is None:
        yield None
        return
    from ruler.experiment.executors.blocks import find_workers, search_on_ray
    from ruler.experiment.executors.cluster import connect, list_needs
    from ruler.neighbors.sharded import searching_by_blocks

    needs = list_needs(cluster, device)
    with connect(max(os.cpu_count() or 1, cluster.job_cpus)) as ray:
        workers = find_workers(ray, needs)
        with searching_by_blocks(search_on_ray(ray, needs), workers=workers):
            yield workers


def _audit_config(path: Path, workers: "Workers | None") -> "Report":
    from ruler.cli.audit_config import read_config

    config = read_config(path)
    settings, folder = config.make_settings(), path.parent
    groups = None if config.groups is None else _locate(config.groups, folder)
    if config.embeddings is None:
        return _audit_models(config, groups, settings, folder)
    named = config.embeddings.model_dump(exclude_none=True)
    _check_pairs(list(named), lambda name: f"embeddings.{name}")
    return _audit_files({name: _locate(value, folder) for name, value in named.items()}, groups, settings, workers)


def _audit_files(
    files: dict[str, Path], groups: Path | None, settings: "AuditSettings | None", workers: "Workers | None"
) -> "Report":
    from ruler.auditing.audit import audit as audit_embeddings
    from ruler.cli.audit_records import load_groups
    from ruler.embeddings import load_embeddings

    sides = [side for side in _SIDES if f"unlearned_{side}" in files]
    models: dict[str, Any] = {
        model: tuple(load_embeddings(files[f"{model}_{side}"]) for side in sides)
        for model in _MODELS
        if f"{model}_forget" in files
    }
    labels = None if groups is None else load_groups(groups)
    with _planned(models, settings, workers):
        report = audit_embeddings(models.pop("unlearned"), **models, groups=labels, settings=settings)
    return _note_files(report, files if groups is None else {**files, "groups": groups})


def _make_settings(n_reference: int | None) -> "AuditSettings":
    from ruler.auditing.settings import AuditSettings

    return AuditSettings(n_reference=n_reference)


@contextmanager
def _planned(models: dict[str, Any], settings: "AuditSettings | None", workers: "Workers | None") -> Iterator[None]:
    """Around a long audit: what it will take, before it starts, and what it took."""
    from ruler.auditing.plan import is_worth_planning, plan_audit

    if not is_worth_planning(models["unlearned"]):
        yield
        return
    plan = plan_audit(**models, settings=settings, workers=workers)
    typer.echo(plan, err=True)
    started_s = time.monotonic()
    yield
    took_s = time.monotonic() - started_s
    share = "" if math.isnan(plan.elapsed_s) else f", {took_s / plan.elapsed_s:.2f} of the plan"
    typer.echo(f"took: {took_s / 60:.3g} min{share}\n", err=True)


def _check_pairs(files: Collection[str], spell: Callable[[str], str]) -> None:
    """Every model with forget and retain records, all with held-out ones or none; ``spell`` names what is missing."""
    given = [model for model in _MODELS if model == "unlearned" or any(name.startswith(model) for name in files)]
    has_held_out = any(name.endswith("held_out") for name in files)
    needed = [f"{model}_{side}" for model in given for side in _SIDES if side != "held_out" or has_held_out]
    missing = [name for name in needed if name not in files]
    if missing:
        raise InputError(
            f"embeddings must come in pairs: every model with forget and retain records, and all with held-out ones or "
            f"none; {spell(missing[0])} is missing. Give it, or leave out what goes with it."
        )


def _audit_models(config: "AuditConfig", groups: Path | None, settings: "AuditSettings", folder: Path) -> "Report":
    from ruler.auditing.models import examine_models
    from ruler.cli.audit_folders import FolderRecords, load_folder
    from ruler.cli.audit_models import find_factory, importable, load_model
    from ruler.cli.audit_records import load_groups, load_records

    assert config.models is not None
    named = {name: getattr(config.models, name) for name in _MODELS}
    checkpoints = {name: _locate(value, folder) for name, value in named.items() if value is not None}
    labels = None if groups is None else load_groups(groups)
    with importable(folder):  # also while models run: their code may import late
        if config.models.factory is None:
            models = {name: load_folder(path, name) for name, path in checkpoints.items()}
            load_side = FolderRecords(checkpoints["unlearned"], models["unlearned"]).load
        else:
            factory = find_factory(config.models.factory, "models.factory")
            models = {name: load_model(factory, path, name) for name, path in checkpoints.items()}
            load_side = load_records
        records, found = _read_data(config, folder, load_side)
        if found is not None and labels is not None:
            raise InputError("groups must come from data.factory or from a file; got both. Leave one of them out.")
        report = examine_models(
            models,
            records,
            layer=config.models.layer,
            groups=labels if found is None else found,
            settings=settings,
            progress=True,
        )
    return _note_files(report, checkpoints)


def _read_data(config: "AuditConfig", folder: Path, load_side: Callable[[Path], Any]) -> tuple[dict[Any, Any], Any]:
    """Records by side, and groups where the data's own function gives them."""
    from ruler.cli.audit_models import find_factory

    assert config.data is not None
    if config.data.factory is None:
        named = {"forget": config.data.forget, "retain": config.data.retain, "test": config.data.test}
        content = {side: load_side(_locate(name, folder)) for side, name in named.items() if name is not None}
    else:
        content = find_factory(config.data.factory, "data.factory")()
    known = {"forget", "retain", "test", "groups"}
    if not isinstance(content, dict) or not {"forget", "retain"} <= content.keys() <= known:
        got = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise InputError(
            f"data.factory must return a dict with forget and retain, and perhaps test and groups; got {got}."
        )
    sides = {"forget": "forget", "retain": "retain", "held_out": "test"}
    records = {side: content[key] for side, key in sides.items() if content.get(key) is not None}
    return records, content.get("groups")


def _locate(name: str, folder: Path) -> Path:
    return folder / Path(name).expanduser()


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _note_files(report: "Report", files: dict[str, Path]) -> "Report":
    noted = {name: str(path) for name, path in files.items()}
    return replace(report, provenance={**report.provenance, "files": noted})


def _tell(report: "Report", out: Path) -> None:
    try:
        folder = report.save(out)
    except OSError as error:
        raise InputError(f"--out must be a folder that can be written; got {out} ({error.strerror}).") from error
    typer.echo(str(report))
    typer.echo(f"\nreport: {folder / 'report.html'}")
    raise typer.Exit(_EXIT_OF[report.verdict])
