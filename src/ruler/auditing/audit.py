"""From embeddings to a verdict: `audit`."""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from ruler.auditing.contrasts import CONTRASTS, Contrast
from ruler.auditing.controls import are_other_records
from ruler.auditing.damage import judge_damage
from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import FamilyFinding, Given, GuardFinding, Report
from ruler.auditing.gather import ModelLike, NamesLike, gather_evidence
from ruler.auditing.guards import run_guards
from ruler.auditing.measure import measure_contrasts
from ruler.auditing.needs import list_needs
from ruler.auditing.privacy import measure_privacy
from ruler.auditing.records import collect_distributions, tabulate_groups, tabulate_records
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import UNFAIR, decide
from ruler.core import __version__
from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import cached_rows_for
from ruler.core.readers.pins import PinnedInputs
from ruler.core.threads import run_in_threads


def audit(
    unlearned: ModelLike,
    *,
    oracle: ModelLike | Sequence[ModelLike] | None = None,
    original: ModelLike | None = None,
    reference: ModelLike | Sequence[ModelLike] | None = None,
    ids: NamesLike | None = None,
    groups: NamesLike | None = None,
    declared: Mapping[str, str] | None = None,
    settings: AuditSettings | None = None,
) -> Report:
    """How much does this model still hold of these records?

    Forget records are compared with held-out records, which no model was trained on. What remains of the trace that
    training leaves is measured on a scale from 0, like records that were never trained on, to 1, like records that
    were: in what the model says and in what its layers hold. "erased" is earned: every interval that can show the limit
    must lie inside it. Without held-out records there are numbers and guards, but no verdict. The rules and their
    measured error rates are in docs/statistics.md.

    Args:
        unlearned: (forget, retain) or (forget, retain, held_out): arrays (n, p), `Embeddings` (which may carry labels,
            losses, groups and strata), tables or files (docs/inputs.md) or, for several layers, dicts of them by layer
            name; or a dict with the keys forget, retain, held_out; or the path of a folder that holds such files.
        oracle: The same records, in the same order, in a model that was never trained on the forget records; or a list
            of such models, retrained from several seeds.
        original: The same in the model before unlearning.
        reference: The same in another model that never saw the forget or the held-out records, or a list of such: the
            checkpoint before fine-tuning, an earlier release, a smaller model. Losses are enough: a tuple of
            one-dimensional arrays.
        ids: Names of the forget records, or a dict with keys forget, retain, held_out.
        groups: Whose record it is, of the forget records or as such a dict; each group counts once, by its mean.
        declared: What whoever runs the audit says about it, such as ``run_by``, ``request`` or ``oracle_made``; shown
            in the report, never verified.
        settings: Error rates, limit, scope, number of draws; None takes the defaults.

    Returns:
        The report: verdict, metrics, records, guards.

    Raises:
        FileFormatError: A folder that cannot be read safely, or a file in it that is written to meanwhile.
        InputError: Not such tuples, arrays that are not 2-D, empty or not finite, or shapes that do not fit together.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(900, 4))
        >>> oracle = tuple(np.split(rows, [200, 500]))
        >>> unlearned = tuple(part + 0.1 * rng.normal(size=part.shape) for part in oracle)
        >>> report = audit(unlearned, oracle=oracle)
        >>> report.verdict, sorted(report.metrics), len(report.records)
        ('inconclusive', ['m1', 'm2', 'm4', 'norm'], 200)
    """
    given = {"unlearned": unlearned, "original": original, "oracle": oracle, "reference": reference}
    places = {name: _list_paths(value) for name, value in given.items()}
    with PinnedInputs(places) as pins:
        report = audit_evidence(
            gather_evidence(
                unlearned,
                oracle=oracle,
                original=original,
                reference=reference,
                ids=ids,
                groups=groups,
                settings=settings,
            )
        )
    inputs = pins.describe()
    provenance = {**report.provenance, "inputs": inputs} if inputs else report.provenance
    return replace(report, provenance=provenance, declared=dict(declared or {}))


def _list_paths(value: Any) -> list[Path]:
    """The files and folders named in one argument of `audit`: a model, its sides, or several models."""
    if isinstance(value, str | PathLike):
        return [Path(value)]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple | list) else ()
    inner = [part for part in parts if isinstance(part, tuple | Mapping)] if isinstance(value, list) else []
    found = [Path(part) for part in parts if isinstance(part, str | PathLike)]
    return found + [path for part in inner for path in _list_paths(part)]


def audit_evidence(
    evidence: Evidence,
    *,
    extra_guards: Iterable[GuardFinding] = (),
    answers: Mapping[str, Mapping[str, float]] | None = None,
    provenance: Mapping[str, Any] | None = None,
    contrasts: Mapping[str, Contrast] = CONTRASTS,
) -> Report:
    """`audit` from evidence that was gathered already, with what is known beside the embeddings.

    Args:
        evidence: Of `gather_evidence`.
        extra_guards: Findings that only the models could show.
        answers: Output-level numbers by model.
        provenance: What else is known of models and data.
        contrasts: The metrics; by default ours and those that other packages add.
    """
    guards = [*extra_guards, *run_guards(evidence)]
    evidence = replace(
        evidence,
        is_fair=evidence.settings.control == "same-rule" or not any(guard.name == UNFAIR for guard in guards),
        has_comparable_members=evidence.has_comparable_members and not are_other_records(evidence),
    )
    found = measure_contrasts(evidence, contrasts)
    records = tabulate_records(evidence, found)
    pending = FamilyFinding("inconclusive", None, "")
    measured = Report(
        verdict="inconclusive",
        reason="",
        outputs=pending,
        layers=pending,
        metrics={name: one.finding for name, one in found.items()},
        records=records,
        groups=tabulate_groups(evidence, found, records),
        guards=guards,
        given=Given(
            oracle=len(evidence.oracles),
            original=evidence.has_original,
            reference=len(evidence.references),
            held_out=evidence.has_held_out,
            losses=evidence.has_losses,
            groups="forget" in evidence.groups,
        ),
        settings=evidence.settings,
        provenance={**_describe_provenance(evidence), **(provenance or {})},
        distributions=collect_distributions(evidence, found),
        pairing=evidence.pairing,
        answers=answers or {},
        damage=judge_damage(evidence, answers or {}),
        privacy=measure_privacy(evidence, found),
    )
    report = decide(measured, contrasts)
    return report if report.verdict != "inconclusive" else replace(report, needs=list_needs(report, evidence))


def _describe_provenance(evidence: Evidence) -> dict[str, Any]:
    """Versions, time, layers, and shape and hash of every array at the main layer. The rows themselves stay out."""
    arrays = [(name, side, rows) for name, model in evidence.models.items() for side, rows in model.rows.items()]
    hashes = run_in_threads(lambda one: hash_rows(one[2]), arrays)
    described: dict[str, dict[str, Any]] = {name: {} for name in evidence.models}
    for (name, side, rows), digest in zip(arrays, hashes, strict=True):
        described[name][side] = {"shape": list(rows.shape), "dtype": str(rows.dtype), "sha256": digest}
    return {
        "ruler": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "layers": [layer for layer in evidence.layers if layer],
        "n_oracles": len(evidence.oracles),
        "n_unmatched": evidence.n_unmatched,
        "grouped": list(evidence.groups),
        "names": {
            "ids": {side: hash_names(evidence.ids[side]) for side in sorted(evidence.named)},
            "groups": {side: hash_names(names) for side, names in evidence.groups.items()},
        },
        "arrays": described,
    }


def hash_names(names: npt.NDArray[Any]) -> str:
    """SHA-256 of ids or groups as a JSON list, in the order that an audit puts the records in.

    Example:
        >>> hash_names(np.array(["ann", "bob"])) == hashlib.sha256(b'["ann", "bob"]').hexdigest()
        True
    """
    return hashlib.sha256(json.dumps(names.tolist(), default=str).encode()).hexdigest()


def hash_rows(rows: npt.NDArray[Any]) -> str:
    """SHA-256 of shape and values as little-endian float64, so that layout and byte order do not matter.

    Example:
        >>> hash_rows(np.eye(2)) == hash_rows(np.asfortranarray(np.eye(2, dtype=np.float32)))
        True
    """
    digest = hashlib.sha256(f"{rows.shape}".encode())
    for start, stop in iterate_blocks(len(rows), cached_rows_for(rows.shape[1])):
        digest.update(np.ascontiguousarray(rows[start:stop], dtype="<f8").data)
    return digest.hexdigest()
