"""`ruler audit`: somebody's embeddings or models -> a verdict, a report and an exit status."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ruler.cli.options import PlainCommand, check_out, choose_cluster
from ruler.core.errors import InputError
from ruler.core.text import show_json

if TYPE_CHECKING:
    from ruler.auditing.findings import Extra, Report

EXAMPLE = "Example: ruler audit --unlearned unlearned --oracle oracle --original original, or: ruler audit audit.toml"
_EXIT_OF = {"erased": 0, "residual": 1, "displaced": 1, "damaged": 1, "invalid": 2, "inconclusive": 3}
_DEVICES = ("cpu", "cuda", "mps", "xpu")
_OLD_OPTION = re.compile(r"--(unlearned|oracle|original)-(forget|retain|held-out)(=.*)?")
_OLD_MARGIN = re.compile(r"--margin(=.*)?")


class AuditCommand(PlainCommand):
    """Tells users of old options what to write instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse the old options, then parse."""
        if any(map(_OLD_MARGIN.fullmatch, args)):
            raise InputError(
                "what may remain must be given as --limit, from 0 (never seen) to 1 (trained on); got the old "
                "--margin, a distance of an AUC. Write --limit 0.2, or leave it out: 0.2 is the default."
            )
        for old in filter(None, map(_OLD_OPTION.fullmatch, args)):
            model, side = old[1], old[2]
            raise InputError(
                f"embeddings must be given as --{model} DIR, one folder per model; got the old --{model}-{side}. "
                f"Put the file into that folder as {side.replace('-', '_')}.npy (or .npz, .parquet, .safetensors, .pt)."
            )
        return super().parse_args(ctx, args)


COMMAND = AuditCommand


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
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="<path>",
            help="The same for another model that never saw these records, such as the one before fine-tuning; "
            "repeat it.",
        ),
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Whose record it is: .csv or .parquet with a column group, .npy or .npz.")
    ] = None,
    ids: Annotated[Path | None, typer.Option(help="Names of the records: as groups, with a column id.")] = None,
    limit: Annotated[
        float | None, typer.Option(help="Most that may remain, by default 0.2: 0 is never seen, 1 trained on.")
    ] = None,
    scope: Annotated[str | None, typer.Option(help="What must be erased: layers (with outputs) or outputs.")] = None,
    control: Annotated[
        str | None,
        typer.Option(
            help="How held-out records were chosen: random (the default), or same-rule as the forget records."
        ),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Error rate of accusations, by default 0.05.")] = None,
    confidence: Annotated[float | None, typer.Option(help="Of the intervals, by default 0.95.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of samples and plots, by default 0; no test depends on it.")
    ] = None,
    layer: Annotated[
        list[str] | None,
        typer.Option(metavar="<str>", help="With models in a TOML file: layer to read; repeat it for several, or all."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device for models and searches, such as cuda; cuda:all searches on every GPU.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="<str>",
            help="With models in a TOML file: quantize (round the weights and audit again) or relearn (relearn half of "
            "the records and read the other half); repeat it.",
        ),
    ] = None,
    n_reference: Annotated[
        int | None,
        typer.Option(help="Rank M4 among this many retain records, drawn at random, instead of all: for millions."),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="Where neighbours are searched: local (this process) or ray (docs/cluster.md).")
    ] = "local",
    job_cpus: Annotated[int | None, typer.Option(help="With ray: cores per job, by default 1.")] = None,
    job_gpus: Annotated[float | None, typer.Option(help="With ray: share of a GPU per job, by default none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("ruler-audit-report"),
    sign: Annotated[
        Path | None, typer.Option(help="Private key of `ruler keygen`: signs the report, for `ruler verify --key`.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(metavar="<str>", help="Save the report as pdf (needs Chromium), sarif or junit too; repeat it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of the summary.")] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print nothing but errors and what code is executed; the report is saved."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on stderr which versions and arrays were used, and the time.")
    ] = False,
    allow_inconclusive: Annotated[
        bool,
        typer.Option(
            "--allow-inconclusive", help="End with 0, not 3, if the verdict is inconclusive and nothing is flagged."
        ),
    ] = False,
) -> None:
    """How much does a model still hold of its forget records?

    A folder of embeddings holds forget.*, retain.* and, if you have them,
    held_out.* (.npy .npz .parquet .safetensors .pt), the same records in the
    same order for every model; a sub-folder of .npy, .parquet or .safetensors
    shards is one matrix and may be larger than memory. Labels, losses, groups
    and strata may be in the files or, for .npy, beside them, such as
    forget_losses.npy. Nothing in them is executed.

    A TOML file may instead name models and data: transformers folders with a
    CSV of texts, a folder of images or a Hugging Face dataset on disk for each
    side, or a function that builds the model, checkpoints and data. The
    function, "module:function", lies in module.py beside that file or in an
    installed package. That file is executed, after a line that says so: name
    only what you trust. Nothing else beside the TOML file is ever imported.

    docs/quickstart.md leads to a complete example of each.

    Exit status: 0 erased, 1 residual, displaced, damaged or anything flagged,
    2 misuse or invalid evidence, 3 inconclusive, 70 an error of RULER itself.
    """
    started_s = time.monotonic()
    check_out(out)
    if as_json and quiet:
        raise InputError("--json must not be used with --quiet; got both. Leave one of them out.")
    from ruler.auditing.report.files import check_extras

    extras = check_extras(also or (), "--also")
    if sign is not None:  # a key that cannot sign: better to know before a long audit than after
        from ruler.auditing.seal.signature import load_private_key

        load_private_key(sign)
    if config is not None and (unlearned or oracle or original or reference or groups or ids):
        raise InputError(f"files must be named either in {config} or by options; got both. Leave one of them out.")
    if config is None and unlearned is None:
        raise InputError(
            "audit must be given a TOML file, or --unlearned and a folder of embeddings; got neither. See --help."
        )
    kinds = [] if device is None else [one.strip().partition(":")[0] for one in device.split(",")]
    if not set(kinds) <= set(_DEVICES):
        raise InputError(f"--device must be one of {', '.join(_DEVICES)}; got {device!r}. Example: --device cuda:0")
    given = {"limit": limit, "scope": scope, "control": control, "alpha": alpha, "confidence": confidence}
    given |= {"seed": seed, "n_reference": n_reference}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    from ruler.auditing.attacks import check_no_attack
    from ruler.auditing.request import audit_config, audit_folders
    from ruler.auditing.settings import AuditSettings
    from ruler.neighbors import find_neighbors
    from ruler.neighbors.ray import search_on_cluster

    cluster = choose_cluster(executor, job_cpus=job_cpus, job_gpus=job_gpus)
    here = nullcontext(partial(find_neighbors, device=device))
    with here if cluster is None else search_on_cluster(cluster, "cpu" if job_gpus is None else "cuda") as search:
        if config is not None:
            words: dict[str, Any] = {"layers": layer, "device": device, "attacks": attack, "progress": not quiet}
            report = audit_config(config, options=options, search=search, **words)
        else:
            check_no_attack(attack)
            if layer:
                raise InputError(
                    "--layer must be used with models in a TOML file; got embeddings, read at one layer. Leave it out."
                )
            named = {"unlearned": unlearned, "oracle": oracle, "original": original, "reference": reference}
            named |= {"groups": groups, "ids": ids}
            places = {name: place for name, place in named.items() if place}
            report = audit_folders(places, AuditSettings(**options), search=search)
    _tell(report, out, sign, extras, as_json=as_json, quiet=quiet)
    if verbose:
        typer.echo("\n".join([*_list_inputs(report), f"time: {time.monotonic() - started_s:.1f} s"]), err=True)
    raise typer.Exit(_choose_status(report, allow_inconclusive=allow_inconclusive))


def _choose_status(report: "Report", *, allow_inconclusive: bool) -> int:
    """The exit status; something that stands out is never allowed."""
    from ruler.auditing.verdict import is_flagged

    if report.verdict == "inconclusive" and is_flagged(report):
        return _EXIT_OF["residual"]
    return 0 if allow_inconclusive and report.verdict == "inconclusive" else _EXIT_OF[report.verdict]


def _list_inputs(report: "Report") -> Iterator[str]:
    """Versions, and the arrays that were read."""
    known = report.provenance
    yield ", ".join(f"{name} {known[name]}" for name in ("ruler", "python", "numpy", "scipy") if name in known)
    for model, sides in known.get("arrays", {}).items():
        for side, array in sides.items():
            yield f"{model} {side}: {tuple(array['shape'])} {array['dtype']}, sha256 {array['sha256'][:12]}"


def _tell(
    report: "Report", out: Path, key: Path | None, extras: "Sequence[Extra]", *, as_json: bool, quiet: bool
) -> None:
    """Save the report and show it; show it even if it cannot be saved, since it may have taken hours."""
    try:
        report.save(out, sign_with=key, also=extras)
    finally:
        if as_json:
            typer.echo(show_json(report.to_dict()))
        elif not quiet:
            typer.echo(str(report))
    if not as_json and not quiet:
        typer.echo(f"\nreport: {out / 'report.html'}")
