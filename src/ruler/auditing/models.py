"""From models and records to a verdict: `audit_models`."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.attacks import (
    LEAST_TAUGHT,
    N_RATES,
    RELEARN,
    Halves,
    choose_attacks,
    describe_attack,
    share_alpha,
    split_halves,
)
from ruler.auditing.audit import audit_evidence
from ruler.auditing.evidence import SIDES, Side
from ruler.auditing.findings import GuardFinding, Report
from ruler.auditing.gather import LossKind, NamesLike, gather_evidence, list_by_side
from ruler.auditing.guards.models import check_retain_accuracy, check_stability
from ruler.auditing.order import hash_content
from ruler.auditing.settings import AuditSettings, check_settings
from ruler.auditing.verdict import count_flagged, decide
from ruler.core.errors import InputError, LayerNotFoundError, RulerError
from ruler.core.optional import load_optional
from ruler.core.types import Embeddings, FloatArray, ModelInput
from ruler.embeddings import read_model
from ruler.embeddings.relearning import choose_rate, relearn_records
from ruler.metrics.outputs import balance_membership
from ruler.neighbors import Searcher, find_neighbors
from ruler.neighbors.devices import list_devices

if TYPE_CHECKING:
    import torch

    from ruler.auditing.attacks import Change
    from ruler.embeddings.extract import ModelReading
    from ruler.embeddings.heads import Pooling

Records = Mapping[Side, Any]
"""Data of each side, as `embed` takes it."""

_N_ASKED_AGAIN = 256

_WEAK = GuardFinding(
    "relearning_weak",
    "note",
    "Relearning taught the audited model next to nothing, at any learning rate that was tried: even the held-out "
    "records that it was trained on stayed unlike retain records. So the layers were not judged by it.",
    "Give more records, or judge the layers by an oracle and the original.",
)


def audit_models(
    unlearned: "torch.nn.Module",
    *,
    oracle: "torch.nn.Module | Sequence[torch.nn.Module] | None" = None,
    original: "torch.nn.Module | None" = None,
    reference: "torch.nn.Module | Sequence[torch.nn.Module] | None" = None,
    forget: ModelInput,
    retain: ModelInput,
    held_out: ModelInput | None = None,
    layer: str | Sequence[str] | None = None,
    pooling: "Pooling | None" = None,
    attack: str | Sequence[str] | None = None,
    ids: NamesLike | None = None,
    groups: NamesLike | None = None,
    batch_size: int = 256,
    device: "str | torch.device | None" = None,
    progress: bool = False,
    declared: Mapping[str, str] | None = None,
    settings: AuditSettings | None = None,
    **removed: Any,
) -> Report:
    """How much does this model still hold of these records, in what it says and in what its layers hold?

    Each model reads each record once. That pass gives representations at all layers, labels, losses and accuracies.
    Models are asked again for some of the forget records: answers that differ make the report invalid.

    The layers are judged by an oracle and an original together, or by labels of classes, or by relearning. Relearning
    trains a copy of each model, references left out, for one epoch on one half of the forget records (of each group,
    where groups are named on both sides) and on held-out records like them, and reads the other half; then the other
    way round. What comes back was still inside. The learning rate of AdamW is 2e-5 for Hugging Face models and 1e-3 for
    others. It is tripled, up to three times, until the held-out records that the audited model is trained on come a
    fifth of the way to retain records: training that teaches less brings nothing back. At 1e-3 perceptrons that hold
    all still showed three quarters of their trace, small convolutional networks two fifths, and models that never saw
    the records none.

    Args:
        unlearned: The model after unlearning, torch or Hugging Face.
        oracle: The same architecture, never trained on the forget records; a list where several were trained.
        original: The model before unlearning.
        reference: Another model that never saw the forget or the held-out records, or a list of such: the checkpoint
            before fine-tuning, an earlier release, a smaller model. It reads the same inputs, so it must share the
            tokenizer. If it lacks a layer that is named, only its losses are used.
        forget: Records to be forgotten, as `embed` takes them: arrays, a pair (X, y), a Dataset, a DataLoader. Where
            they carry labels, losses are compared too.
        retain: Records that were to be kept.
        held_out: Records that no model was trained on, alike in kind to the forget records: the control.
        layer: Where to read, as `embed`: a name, a list of names or "all"; None finds the input of the task head.
        pooling: Of language models, as `embed`: "completion", "last" or "span"; None takes the completion where labels
            mark one.
        attack: "relearn" adds the contrast "relearned", as above. "quantize" audits all models again with weights of
            four bits; the verdict is the worse of the two, and they share alpha. Or a list of both.
        ids: Names of the forget records, or a dict with keys forget, retain, held_out; by default those of the data.
        groups: Whose record it is, of the forget records or as such a dict.
        batch_size: Records per forward pass.
        device: Where models run and neighbours are searched, e.g. ``"cuda"``; by default where each model is. With
            several, such as ``"cuda:all"``, models run on the first.
        progress: Show progress bars, if standard error is a terminal.
        declared: What whoever runs the audit says about it, as `audit`.
        settings: Of the audit.

    Returns:
        The report. If the data carries labels of classes or tokens, ``answers`` holds accuracies, and with held-out
        records the paper's membership inference. If losses could not be computed, a guard named "losses_unknown" says
        why.

    Raises:
        InputError: Data that cannot be fed, embeddings that are not finite or do not fit together.
        LayerNotFoundError: No such layer, or no task head.
        UnstableModelError: A model that embeds the same batch differently each time.
        MissingPackageError: torch is not installed.

    Example:
        >>> import torch
        >>> _ = torch.manual_seed(0)
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> records = torch.randn(160, 4), torch.randint(2, (160,))
        >>> forget, retain, held_out = (tuple(part[rows] for part in records) for rows in torch.arange(160).split(60))
        >>> report = audit_models(model, forget=forget, retain=retain, held_out=held_out)
        >>> sorted(report.metrics), sorted(report.answers["unlearned"])
        (['loss', 'm4', 'readout'], ['forget_accuracy', 'held_out_accuracy', 'membership_inference', 'retain_accuracy'])
    """
    if "test" in removed:
        raise InputError("held_out must name the records that no model was trained on; got test. Write held_out=.")
    if removed:
        raise TypeError(f"audit_models() got an unexpected keyword argument {next(iter(removed))!r}")
    models = {"unlearned": unlearned, "oracle": oracle, "original": original, "reference": reference}
    records = {"forget": forget, "retain": retain, "held_out": held_out}
    report = examine_models(
        {**models, **records, "ids": ids, "groups": groups},
        layer=layer,
        pooling=pooling,
        attack=attack,
        batch_size=batch_size,
        device=device,
        progress=progress,
        settings=settings,
        search=find_neighbors if device is None else partial(find_neighbors, device=str(device)),
    )
    return replace(report, declared=dict(declared or {}))


def examine_models(
    given: Mapping[str, Any],
    *,
    layer: str | Sequence[str] | None,
    pooling: "Pooling | None" = None,
    attack: str | Sequence[str] | None = None,
    batch_size: int = 256,
    device: "str | torch.device | None",
    progress: bool,
    settings: AuditSettings | None,
    search: Searcher,
) -> Report:
    """`audit_models` with neighbours searched by ``search``; ``given`` are its other arguments by name."""
    load_optional("torch", "auditing a model")
    settings = check_settings(settings)
    named = _name_models(given)
    records: Records = {side: given[side] for side in SIDES if given.get(side) is not None}
    missing = next((side for side in ("forget", "retain") if side not in records), None)
    if missing:
        raise InputError(f"{missing} must be given; got None. Give the records as ruler.embed takes them.")
    if isinstance(device, str):
        device = list_devices(device)[0]
    attacks = choose_attacks(attack)
    settings = share_alpha(settings, attacks)
    asked: dict[str, Any] = {"pooling": pooling, "batch_size": batch_size, "device": device, "progress": progress}
    readings = _read_all(named, records, layer, asked)
    places = layer if _is_single(layer) else list(readings["unlearned"]["forget"].layers)
    judge = partial(_judge, given=given, records=records, layer=layer, settings=settings, search=search)
    found = list(_check_stability(named, readings, records, asked))
    relearn = None
    if any(one.name == RELEARN for one in attacks):
        plan = _plan_relearning(readings, records, given, asked, settings.seed)
        rate = _find_rate(plan, unlearned=named["unlearned"], sides=readings["unlearned"])
        if rate is None:
            found.append(_WEAK)
        else:
            relearn = partial(_relearn_all, plan, named, rate)
    report = judge(named, readings, found, relearn() if relearn else None)
    if relearn:
        trained = {"epochs": 1, "learning_rate": rate}
        report = replace(report, provenance={**report.provenance, "relearned": trained})
    repeated = [one for one in attacks if one.apply is not None]
    if not repeated:
        return report
    del readings
    findings, needs = {}, [report.needs]
    for one in repeated:
        again = _read_all(named, records, places, asked, one.apply)
        attacked = judge(named, again, [], relearn(one.apply) if relearn else None)
        findings[one.name] = describe_attack(one, attacked, count_flagged(attacked))
        needs.append(attacked.needs)
    report = decide(replace(report, attacks=findings))
    wanted = next(filter(None, needs), []) if report.verdict == "inconclusive" else []
    return replace(report, needs=wanted)


def _is_single(layer: str | Sequence[str] | None) -> bool:
    return layer is None or (isinstance(layer, str) and layer != "all")


def _read_all(
    named: "Mapping[str, torch.nn.Module]",
    records: Records,
    layer: str | Sequence[str] | None,
    asked: Mapping[str, Any],
    change: "Change | None" = None,
) -> "dict[str, dict[Side, ModelReading]]":
    """What every model says about all records; each model is changed first, if asked, one at a time."""
    readings: dict[str, dict[Side, ModelReading]] = {name: {} for name in named}
    for name, model in named.items():
        read = model if change is None else change(model)
        for side in records:
            readings[name][side] = _read_one(read, name, side, records, layer, asked)
            if layer == "all":  # the same layers in every model, whatever it would choose by itself
                layer = list(readings[name][side].layers)
        del read
    return readings


def _read_one(
    model: "torch.nn.Module",
    name: str,
    side: Side,
    records: Records,
    layer: str | Sequence[str] | None,
    asked: Mapping[str, Any],
) -> "ModelReading":
    """Of a reference that lacks the layer, what it says by itself: its losses can be used."""
    try:
        return _read(model, name, side, records, layer, asked)
    except LayerNotFoundError:
        if layer is None or not name.startswith("reference"):
            raise
        return _read(model, name, side, records, None, asked)


@dataclass(frozen=True, eq=False)
class _Relearning:
    """What is relearned and read, in every model alike: ``layers`` are those at which models read anyway, by name."""

    records: Records
    halves: Halves
    kind: str
    layers: Mapping[str, str]
    asked: Mapping[str, Any]
    seed: int

    def train(self, model: "torch.nn.Module", half: int, rate: float) -> "torch.nn.Module":
        """A copy after one epoch on a half."""
        data = [(self.records[side], rows) for side, rows in self.halves.relearned[half].items()]
        how = {name: self.asked[name] for name in ("device", "progress")}
        return relearn_records(model, data, kind=self.kind, learning_rate=rate, seed=self.seed, **how)

    def read(self, trained: "torch.nn.Module", name: str, side: Side) -> FloatArray:
        """Losses (n,) of a side's records in a model that relearned; NaN where they are not finite."""
        reading = _read(trained, f"relearned {name}", side, self.records, self.layers[name], self.asked)
        return reading.losses.get(self.kind, np.full(len(reading.rows), np.nan))


def _plan_relearning(
    readings: "Mapping[str, Mapping[Side, ModelReading]]",
    records: Records,
    given: Mapping[str, Any],
    asked: Mapping[str, Any],
    seed: int,
) -> _Relearning:
    """Halves follow from the content of the records as the audited model reads them."""
    kind, why = _choose_loss(readings)
    if kind is None:
        raise InputError(f"relearning must have losses of all records; got none. {why} Give labels, or leave it out.")
    main = {side: list(one.layers.values())[-1] for side, one in readings["unlearned"].items()}
    known = {side: rows.groups for side, rows in main.items() if rows.groups is not None}
    sizes = {side: len(rows) for side, rows in main.items()}
    keys = {side: hash_content(rows.values) for side, rows in main.items()}
    halves = split_halves(keys, known | list_by_side(given.get("groups"), "groups", sizes))
    layers = {name: list(one["forget"].layers)[-1] for name, one in readings.items()}
    return _Relearning(records, halves, kind, layers, asked, seed)


def _find_rate(
    plan: _Relearning, *, unlearned: "torch.nn.Module", sides: "Mapping[Side, ModelReading]"
) -> float | None:
    """The least learning rate that teaches the audited model the held-out records of a half; None if none does."""
    held_out, rows = sides["held_out"].losses[plan.kind], plan.halves.relearned[0]["held_out"]
    least = LEAST_TAUGHT * float(held_out.mean() - sides["retain"].losses[plan.kind].mean())
    for rate in choose_rate(unlearned) * 3.0 ** np.arange(N_RATES):
        after = plan.read(plan.train(unlearned, 0, float(rate)), "unlearned", "held_out")
        if float((held_out - after)[rows].mean()) >= least:
            return float(rate)
    return None


def _relearn_all(
    plan: _Relearning, named: "Mapping[str, torch.nn.Module]", rate: float, change: "Change | None" = None
) -> dict[str, dict[Side, FloatArray]]:
    """By model and side, losses after the model relearned the other half; of retain records the mean over both."""
    found: dict[str, dict[Side, FloatArray]] = {}
    for name in (name for name in named if not name.startswith("reference")):
        model = named[name] if change is None else change(named[name])
        after = []
        for half in (0, 1):
            trained = plan.train(model, half, rate)
            after.append({side: plan.read(trained, name, side) for side in plan.records})
            del trained
        first, second = after
        if not all(np.isfinite(losses).all() for one in after for losses in one.values()):
            raise InputError(f"relearning must leave losses that are finite; the {name} model has none. Leave it out.")
        found[name] = {
            side: np.where(is_second, first[side], second[side]) for side, is_second in plan.halves.second.items()
        } | {"retain": (first["retain"] + second["retain"]) / 2}
    return found


def _judge(
    named: "Mapping[str, torch.nn.Module]",
    readings: "Mapping[str, Mapping[Side, ModelReading]]",
    found: list[GuardFinding],
    relearned: Mapping[str, Mapping[Side, FloatArray]] | None,
    *,
    given: Mapping[str, Any],
    records: Records,
    layer: str | Sequence[str] | None,
    settings: AuditSettings,
    search: Searcher,
) -> Report:
    """The audit of what the models said; ``found`` are guards' findings about the models."""
    ids = given.get("ids")
    kind, why_no_losses = _choose_loss(readings)
    if why_no_losses is not None:
        found.append(
            GuardFinding(
                "losses_unknown",
                "note",
                f"Losses were not compared: {why_no_losses}",
                "Give every side labels that fit the model's head: the last part of a tuple, or the key 'labels' of "
                "a dict.",
            )
        )
    layers, is_single = list(readings["unlearned"]["forget"].layers), _is_single(layer)
    collected = {
        name: _collect(one, kind, is_main=name == "unlearned", is_single=is_single)
        for name, one in readings.items()
        if not name.startswith("reference")
    }
    references: list[Any] = []
    for name in (name for name in readings if name.startswith("reference")):
        sides = readings[name]
        has_losses = kind is not None and all(kind in one.losses for one in sides.values())
        if kind is not None and not has_losses:
            why = next((one.why_no_losses for one in sides.values() if one.why_no_losses), "They are of another kind.")
            found.append(
                GuardFinding(
                    "losses_unknown",
                    "note",
                    f"The losses of {name} were not used: {why}",
                    "Give a reference that answers the same question, or leave it out.",
                )
            )
        if layer is not None and list(sides["forget"].layers) != layers:
            if not has_losses:
                raise InputError(
                    f"{name} must have the layers {', '.join(layers)} or losses; got neither. Give a model that has "
                    "one, or leave it out."
                )
            references.append(tuple(one.losses[str(kind)] for one in sides.values()))
        else:
            references.append(_collect(sides, kind if has_losses else None, is_main=False, is_single=is_single))
    evidence = gather_evidence(
        collected["unlearned"],
        oracle=[collected[name] for name in collected if name.startswith("oracle")] or None,
        original=collected.get("original"),
        reference=references or None,
        ids=_name_apart(records, readings["unlearned"])
        | (dict(ids) if isinstance(ids, Mapping) else {} if ids is None else {"forget": ids}),
        groups=given.get("groups"),
        settings=settings,
        search=search,
        loss_kind=_name_score(kind),
        relearned=relearned,
    )
    answers = {name: numbers for name, one in readings.items() if (numbers := _measure_answers(one, kind))}
    found += check_retain_accuracy(answers, len(evidence.ids["retain"]))
    return audit_evidence(
        evidence,
        extra_guards=found,
        answers=answers,
        provenance={
            **_describe_models(named, readings["unlearned"], kind),
            **given.get("described", {}),
        },
    )


def hash_weights(model: "torch.nn.Module") -> str:
    """SHA-256 of all tensors of the ``state_dict`` in the order of their names, bytes as stored.

    Empty where some are not in memory, since accelerate fetches them from disk.

    Example:
        >>> import torch
        >>> hash_weights(torch.nn.Flatten()) == hashlib.sha256(b"").hexdigest()
        True
    """
    torch = load_optional("torch", "hashing a model's weights")
    digest = hashlib.sha256()
    if any(value.is_meta for value in model.state_dict().values() if isinstance(value, torch.Tensor)):
        return ""
    for _, value in sorted(model.state_dict().items()):
        if isinstance(value, torch.Tensor) and value.numel():
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _name_models(given: Mapping[str, Any]) -> "dict[str, torch.nn.Module]":
    """Models by name, the original after the audited one; several oracles are called oracle, oracle 2, ..."""
    named = {name: given[name] for name in ("unlearned", "original") if given.get(name) is not None}
    for name in ("oracle", "reference"):
        value = given.get(name)
        models = list(value) if isinstance(value, Sequence) else [] if value is None else [value]
        if value is not None and not models:
            raise InputError(
                f"{name} must be a model or a list of at least one; got an empty list. Omit it if unknown."
            )
        named |= {name if number == 1 else f"{name} {number}": one for number, one in enumerate(models, 1)}
    return named


def _read(
    model: "torch.nn.Module",
    name: str,
    side: Side,
    records: Records,
    layer: str | Sequence[str] | None,
    asked: Mapping[str, Any],
) -> "ModelReading":
    """`read_model` whose errors say which model and records."""
    try:
        return read_model(model, records[side], layer=layer, **asked)
    except RulerError as error:
        raise type(error)(f"{name} model, {side.replace('_', '-')} records: {error}") from error


def _check_stability(
    named: "Mapping[str, torch.nn.Module]",
    readings: "Mapping[str, Mapping[Side, ModelReading]]",
    records: Records,
    asked: Mapping[str, Any],
) -> Iterator[GuardFinding]:
    """Ask every model again for some forget records; of a model that answers differently, report the first layer."""
    for name, model in named.items():
        first = readings[name]["forget"].layers
        some = {**asked, "progress": False, "n_most": _N_ASKED_AGAIN}
        again = _read(model, name, "forget", records, list(first), some)
        for layer, rows in first.items():
            changed = list(check_stability(rows.values[again.rows], again.layers[layer].values, name))
            yield from changed
            if changed:
                break


def _choose_loss(readings: "Mapping[str, Mapping[Side, ModelReading]]") -> tuple[str | None, str | None]:
    """The kind of loss that is known for all records in all models but references; else why there is none."""
    readings = {name: sides for name, sides in readings.items() if not name.startswith("reference")}
    for name, sides in readings.items():
        for side, one in sides.items():
            if one.why_no_losses is not None:
                where = f"{name} model, {side.replace('_', '-')} records"
                return None, f"{one.why_no_losses.removesuffix('.')} ({where})."
    everything = [one for sides in readings.values() for one in sides.values()]
    kind = next((kind for kind in everything[0].losses if all(kind in one.losses for one in everything)), None)
    return kind, None if kind else "The labels ask for different losses on different sides."


def _name_score(kind: str | None) -> LossKind | None:
    """How losses of this kind become scores."""
    if kind is None:
        return None
    from ruler.embeddings import losses

    return {losses.TOKENS: "likelihood", losses.SQUARED_ERROR: "error"}.get(kind, "confidence")  # type: ignore[return-value]


def _collect(
    sides: "Mapping[Side, ModelReading]", kind: str | None, *, is_main: bool, is_single: bool
) -> tuple[Embeddings | dict[str, Embeddings], ...]:
    """What `gather_evidence` takes of one model; what describes the records comes with the unlearned one only."""
    parts: list[Embeddings | dict[str, Embeddings]] = []
    for one in sides.values():
        known: dict[str, Any] = {"losses": None if kind is None else one.losses[kind]}
        if not is_main:
            known |= {"labels": None, "groups": None, "strata": None, "features": None}
        layers = {name: replace(rows, **known) for name, rows in one.layers.items()}
        parts.append(next(iter(layers.values())) if is_single else layers)
    return tuple(parts)


def _measure_answers(sides: "Mapping[Side, ModelReading]", kind: str | None) -> dict[str, float]:
    """Accuracies where classes or tokens are known, and membership inference where losses are."""
    numbers = {f"{side}_accuracy": float(one.hits.mean()) for side, one in sides.items() if one.hits is not None}
    if kind is not None and "held_out" in sides and all(kind in one.losses for one in sides.values()):
        forget, held_out = sides["forget"].losses[kind], sides["held_out"].losses[kind]
        numbers["membership_inference"] = balance_membership(forget, held_out)
    return numbers


def _describe_models(
    named: "Mapping[str, torch.nn.Module]", sides: "Mapping[Side, ModelReading]", kind: str | None
) -> dict[str, Any]:
    reading = sides["forget"]
    by_words: dict[str, list[str]] = {}
    for one, words in reading.pooling.items():
        by_words.setdefault(words, []).append(one)
    pooling = next(iter(by_words)) if len(by_words) == 1 else None
    described: dict[str, Any] = {
        "layers": list(reading.layers),
        "pooling": pooling or "; ".join(f"{words} ({', '.join(layers)})" for words, layers in by_words.items()),
        "loss": kind,
        "models": {name: f"{type(model).__module__}.{type(model).__qualname__}" for name, model in named.items()},
        "weights": {name: hash_weights(model) for name, model in named.items()},
        "torch": load_optional("torch", "auditing a model").__version__,
    }
    tokens = {side: one.n_tokens for side, one in sides.items() if one.n_tokens is not None}
    if tokens:
        described["tokens"] = {
            side: f"{n.min()} to {n.max()} that count per record, {n.sum():,} in all" for side, n in tokens.items()
        }
    if any(hasattr(model, "config") and hasattr(model, "base_model_prefix") for model in named.values()):
        described["transformers"] = load_optional("transformers", "auditing a Hugging Face model").__version__
    return described


def _name_apart(records: Records, sides: "Mapping[Side, ModelReading]") -> dict[str, npt.NDArray[Any]]:
    """Names for sides whose ids count the rows of another dataset than the first side's: equal numbers mean nothing."""
    ids = {side: list(one.layers.values())[-1].ids for side, one in sides.items()}
    datasets = {side: _find_numbered_dataset(records[side], own) for side, own in ids.items()}
    reference = next((dataset for dataset in datasets.values() if dataset is not None), None)
    return {
        side: np.array([f"{side} {row}" for row in ids[side].tolist()])
        for side, dataset in datasets.items()
        if dataset is not None and dataset is not reference
    }


def _find_numbered_dataset(data: Any, ids: npt.NDArray[Any]) -> Any:
    """The whole dataset whose rows a `Subset` without named records counts; None for other data."""
    is_subset = False
    while hasattr(data, "dataset"):
        is_subset = is_subset or hasattr(data, "indices")
        data = data.dataset
    return data if is_subset and ids.dtype.kind in "iu" and getattr(data, "ids", None) is None else None
