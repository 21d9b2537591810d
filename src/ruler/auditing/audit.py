"""From embeddings to a verdict: `audit`."""

from collections.abc import Iterable, Mapping
from typing import Any

from ruler.auditing.conclusions import conclude_metrics, invalidate
from ruler.auditing.distributions import collect_distributions
from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding, Report
from ruler.auditing.gather import gather_evidence
from ruler.auditing.guards import run_guards
from ruler.auditing.provenance import describe_provenance
from ruler.auditing.records import tabulate_groups, tabulate_records
from ruler.auditing.settings import AuditSettings
from ruler.auditing.verdict import adjust_deciding, decide_overall


def audit(
    unlearned: Any,
    *,
    oracle: Any = None,
    original: Any = None,
    ids: Any = None,
    groups: Any = None,
    settings: AuditSettings | None = None,
) -> Report:
    """Has this model forgotten these records, and what speaks for it?

    Forget records are compared with a control: held-out records that no model was trained on where they are given, else
    placebo sets drawn from forget and retain records together. The oracle adds M1 and M2, the original M3 and what is
    left of its own contrast. docs/statistics.md states the nulls, the margins and the measured error rates.

    Args:
        unlearned: (forget, retain) or (forget, retain, held_out), arrays (n, p) or `Embeddings`.
        oracle: The same records, in the same order, in a model that was never trained on the forget records.
        original: The same in the model before unlearning.
        ids: Names of the forget records, or a dict with keys forget, retain, held_out.
        groups: Whose record it is, of the forget records or as such a dict; groups are permuted and drawn whole.
        settings: Error rates, margin, number of draws; None takes the defaults.

    Returns:
        The report: verdict, metrics, records, guards.

    Raises:
        InputError: Not such tuples, arrays that are not 2-D, empty or not finite, or shapes that do not fit together.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = rng.normal(size=(900, 4))
        >>> oracle = tuple(np.split(rows, [200, 500]))
        >>> unlearned = tuple(part + 0.1 * rng.normal(size=part.shape) for part in oracle)
        >>> report = audit(unlearned, oracle=oracle)
        >>> report.verdict, sorted(report.metrics), len(report.records)
        ('erased', ['m1', 'm2', 'm4'], 200)
    """
    return audit_evidence(
        gather_evidence(unlearned, oracle=oracle, original=original, ids=ids, groups=groups, settings=settings)
    )


def audit_evidence(
    evidence: Evidence,
    *,
    extra_guards: Iterable[GuardFinding] = (),
    outputs: Mapping[str, Mapping[str, float]] | None = None,
) -> Report:
    """`audit` from evidence that was gathered already, with what is known beside the embeddings.

    Args:
        evidence: Of `gather_evidence`.
        extra_guards: Findings that only the models could show.
        outputs: Output-level numbers by model.
    """
    guards = [*extra_guards, *run_guards(evidence)]
    metrics = adjust_deciding(conclude_metrics(evidence))
    verdict, reason = decide_overall(metrics, guards, evidence.settings)
    if verdict == "invalid":
        metrics = {name: invalidate(one, reason) for name, one in metrics.items()}
    records = tabulate_records(evidence)
    return Report(
        verdict=verdict,
        reason=reason,
        metrics=metrics,
        records=records,
        groups=tabulate_groups(evidence, records),
        guards=guards,
        settings=evidence.settings,
        provenance=describe_provenance(evidence),
        distributions=collect_distributions(evidence),
        pairing=evidence.pairing,
        outputs=outputs or {},
    )
