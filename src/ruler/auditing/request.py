"""What `ruler audit` is asked, carried out: a TOML file or folders of embeddings -> a report that can be repeated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ruler.auditing.attacks import check_no_attack
from ruler.auditing.audit import audit_evidence
from ruler.auditing.findings import Report
from ruler.auditing.gather import gather_evidence
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import InputError
from ruler.core.readers.pins import PinnedInputs
from ruler.embeddings.bundle.config import (
    AuditConfig,
    Places,
    apply_to_each,
    list_places,
    read_config,
)
from ruler.embeddings.bundle.loading import load_bundle, load_groups
from ruler.embeddings.sides import load_model_folder
from ruler.neighbors import Searcher, find_neighbors

_BESIDE = {"groups": "group", "ids": "id"}
"""Files that say something of the records, with the column of a table that does."""


def audit_config(
    path: Path,
    *,
    options: Mapping[str, Any] | None = None,
    layers: Sequence[str] | None = None,
    device: str | None = None,
    attacks: Sequence[str] | None = None,
    search: Searcher = find_neighbors,
    progress: bool = False,
) -> Report:
    """Audit what a TOML file names.

    Args:
        path: Of the file; what it names lies relative to it.
        options: Settings that go before those of the file.
        layers: To read, instead of those that the file names.
        device: Where models run.
        attacks: On the models, instead of those that the file names.
        search: Who searches neighbours.
        progress: Show how far it is.

    Raises:
        InputError: As `audit`, or options that do not fit the file.
        FileFormatError: A file that cannot be read safely, or that is written to meanwhile.
    """
    first = PinnedInputs({"config": path} if path.is_file() else {})
    config, settings = read_config(path, AuditSettings)
    settings = replace(settings, **(options or {}))
    named = config.models.attack if config.models else None
    attacks = attacks or ([named] if isinstance(named, str) else named)
    if config.embeddings is not None and layers:
        raise InputError(f"--layer must be used with [models]; got [embeddings] in {path}. Leave it out.")
    places = list_places(config, path.parent)
    with PinnedInputs({**places, "config": path, **_list_code(config, path.parent)}) as pins:
        first.check()  # what was read is what was pinned
        if config.embeddings is not None:
            check_no_attack(attacks)
            report = _audit_rows(places, settings, search, config.embeddings.strata)
        else:
            from ruler.auditing.models import examine_models

            chosen = layers or (config.models.layer if config.models else None)
            report = examine_models(
                load_bundle(config, path.parent),
                layer=chosen[0] if isinstance(chosen, list) and len(chosen) == 1 else chosen,
                pooling=config.models.pooling if config.models else None,
                attack=attacks,
                device=device,
                progress=progress,
                settings=settings,
                search=search,
            )
    declared = config.evidence.model_dump(exclude_none=True) if config.evidence else {}
    request: dict[str, Any] = {"config": str(path), "layers": list(layers) if layers else None, "device": device}
    if attacks:  # alpha of all audits together; the report's settings have that of each
        request |= {"attacks": list(attacks), "alpha": settings.alpha}
    return replace(_note_inputs(report, places, pins, request), declared=declared)


def audit_folders(places: Places, settings: AuditSettings, *, search: Searcher = find_neighbors) -> Report:
    """Audit folders of embeddings, by model, and a file of groups under "groups". Other arguments as `audit_config`.

    Raises:
        InputError: As `audit`.
        FileFormatError: A file that cannot be read safely, or that is written to meanwhile.
    """
    with PinnedInputs(places) as pins:
        report = _audit_rows(places, settings, search, None)
    named = {name: apply_to_each(str, place) for name, place in places.items()}
    return _note_inputs(report, places, pins, {"embeddings": named})


def repeat(report: Report, *, search: Callable[[str | None], Searcher]) -> Report:
    """The same audit again, from the inputs that a report names and with its settings.

    Args:
        report: Of `audit_config` or `audit_folders`, now or long ago.
        search: Gives who searches neighbours on a device.

    Raises:
        InputError: The report does not say how to repeat it.
        RulerError: What the audit itself can raise: inputs that are gone, say.
    """
    request = report.provenance.get("request")
    if isinstance(request, Mapping) and isinstance(request.get("config"), str):
        device = request.get("device")
        return audit_config(
            Path(request["config"]),
            options={**vars(report.settings), "alpha": request.get("alpha", report.settings.alpha)},
            layers=request.get("layers"),
            device=device,
            attacks=request.get("attacks"),
            search=search(device),
        )
    if isinstance(request, Mapping) and isinstance(request.get("embeddings"), Mapping):
        places = {str(name): apply_to_each(Path, at) for name, at in request["embeddings"].items()}
        return audit_folders(places, report.settings, search=search(None))
    raise InputError(
        "report must say how to repeat it; got one that was made in Python, from arrays. "
        "Audit the same arrays again and compare the two reports."
    )


def _audit_rows(places: Places, settings: AuditSettings, search: Searcher, strata: str | None) -> Report:
    load = partial(load_model_folder, strata=strata)
    models: dict[str, Any] = {name: apply_to_each(load, at) for name, at in places.items() if name not in _BESIDE}
    models |= {name: load_groups(Path(str(places[name])), _BESIDE[name]) for name in _BESIDE if name in places}
    return audit_evidence(gather_evidence(**models, settings=settings, search=search))


def _list_code(config: AuditConfig, folder: Path) -> dict[str, list[Path]]:
    """The files beside the configuration that its factories are loaded from."""
    named = [table.factory for table in (config.models, config.data) if table is not None and table.factory]
    files = {folder / f"{name.partition(':')[0]}.py" for name in named}
    found = sorted(path for path in files if path.is_file())
    return {"code": found} if found else {}


def _note_inputs(report: Report, files: Places, pins: PinnedInputs, request: Mapping[str, Any]) -> Report:
    """Add where the inputs lie and what they hash to."""
    noted: dict[str, str] = {}
    for name, place in files.items():
        for number, one in enumerate(place if isinstance(place, list) else [place], 1):
            noted[name if number == 1 else f"{name} {number}"] = str(one)
    known = {"files": noted, "inputs": pins.describe(), "request": request}
    return replace(report, provenance={**report.provenance, **known})
