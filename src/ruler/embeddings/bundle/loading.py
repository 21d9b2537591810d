"""Models, records and groups that the TOML file of an audit names, loaded."""

from functools import partial
from pathlib import Path
from typing import Any

from ruler.core.errors import InputError
from ruler.core.readers.adapters import is_adapter
from ruler.embeddings.bundle.checkpoints import find_factory, load_checkpoint, load_transformer
from ruler.embeddings.bundle.config import AuditConfig, apply_to_each, list_places
from ruler.embeddings.bundle.groups import load_groups
from ruler.embeddings.bundle.prompts import PromptForm
from ruler.embeddings.bundle.records import FolderRecords, load_records
from ruler.embeddings.folders import SIDES


def load_bundle(config: AuditConfig, folder: Path) -> dict[str, Any]:
    """Load the models, records and groups of a configuration that has ``[models]`` and ``[data]``.

    Only code that ``models.factory`` and ``data.factory`` name is executed; see `find_factory`.

    Args:
        config: As `read_config` gives it.
        folder: Where the configuration lies.

    Returns:
        Arguments of `audit_models` by name, and under "described" what the report should say of how they were read.

    Raises:
        InputError: A factory that fails or returns something else.
        FileFormatError: A file or folder that cannot be read safely.
        CheckpointError: Weights that do not fit the model.
    """
    assert config.models is not None
    assert config.data is not None
    places = list_places(config, folder)
    groups = load_groups(Path(str(places.pop("groups")))) if "groups" in places else None
    sides = {side: Path(str(places.pop(side))) for side in SIDES if side in places}
    base = Path(str(places.pop("base"))) if "base" in places else None
    options = config.models.model_dump(include={"dtype", "load_in", "device_map"}, exclude_none=True)
    described: dict[str, Any] = dict(options)
    if base is not None:
        described["adapters"] = f"merged into {base}"
    models: dict[str, Any] = {}
    factory = None if config.models.factory is None else find_factory(config.models.factory, "models.factory", folder)
    for name, place in places.items():
        if factory is None:
            models[name] = apply_to_each(partial(load_transformer, name=name, base=base, options=options), place)
        else:
            models[name] = apply_to_each(partial(load_checkpoint, factory, name=name), place)
    if config.data.factory is not None:
        records = _check_records(find_factory(config.data.factory, "data.factory", folder)())
    elif factory is None:
        columns = {"label": config.data.label, "strata": config.data.strata}
        named = config.data.model_dump(include={"prompt", "completion", "span", "strata"})
        prompts = PromptForm(named, config.data.template, config.data.form, config.data.max_tokens)
        unlearned = Path(str(places["unlearned"]))
        home = base if base is not None and is_adapter(unlearned) else unlearned  # where the tokenizer lies
        prepared = FolderRecords(home, models["unlearned"], columns, prompts)
        if prepared.takes_prompts(sides["forget"]):
            described["records"] = prompts.describe()
        records = {side: prepared.load(path) for side, path in sides.items()}
    else:
        records = {side: load_records(path) for side, path in sides.items()}
    found = records.pop("groups", None)
    if found is not None and groups is not None:
        raise InputError("groups must come from data.factory or from a file; got both. Leave one of them out.")
    return {**models, **records, "groups": groups if found is None else found, "described": described}


def _check_records(content: Any) -> dict[str, Any]:
    """What data.factory returned, by side, without sides that are None."""
    rule = "data.factory must return a dict with forget and retain, and perhaps held_out and groups"
    if not isinstance(content, dict):
        raise InputError(f"{rule}; got {type(content).__name__}.")
    if "test" in content:
        raise InputError(f"{rule}; got test. Rename it to held_out.")
    if not {"forget", "retain"} <= content.keys() <= {*SIDES, "groups"}:
        raise InputError(f"{rule}; got {', '.join(map(str, content))}.")
    return {name: value for name, value in content.items() if value is not None}
