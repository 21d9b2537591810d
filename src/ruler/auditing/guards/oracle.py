"""The oracle: whether it shares its axes with the unlearned model."""

import math
from collections.abc import Iterator

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding


def check_pairing(evidence: Evidence) -> Iterator[GuardFinding]:
    """An oracle that was not trained from the same seed, so that plain similarities to it say little."""
    pairing = evidence.pairing
    if pairing is None or pairing.is_paired:
        return
    seen = "Its embeddings have another width"
    if not math.isnan(pairing.plain_similarity):
        seen = f"Retain records are {pairing.plain_similarity:.3f} similar to themselves in the oracle"
    if pairing.is_aligned:
        seen += f"; after alignment {pairing.aligned_similarity:.3f}, so the aligned M1 to M3 are used"
    yield GuardFinding(
        "unpaired_oracle",
        "warn",
        f"The oracle does not look seed-paired with the unlearned model. {seen}.",
        "Retrain the oracle from the original's seed and data order, or read M1 to M3 with care: aligned values show "
        "less of what is left.",
    )
