"""M3: did unlearning move the forget records towards the oracle?"""

from collections.abc import Sequence

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.contrasts.oracle_similarity import score_oracle_similarity
from ruler.auditing.evidence import LayerRows


def score_shift(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Similarity to the oracle less the original model's, both through a map if the unlearned model needs one."""
    assert model.original is not None
    modes = [model.pair_with(oracle).is_aligned for oracle in oracles]
    before = score_oracle_similarity(model.original, oracles, modes)
    return {side: now - before[side] for side, now in score_oracle_similarity(model, oracles, modes).items()}


def average_shift(model: LayerRows, oracle: LayerRows, is_aligned: bool) -> float:
    """M3 against one oracle, without or with a map."""
    assert model.original is not None
    now, before = (one.compare(oracle, is_aligned=is_aligned)["forget"] for one in (model, model.original))
    return float((now - before).mean())


M3 = Contrast(
    name="m3",
    symbol="M3",
    title="Representation shift",
    score_title="Shift towards the oracle (M3)",
    question="Did unlearning move the forget records towards the oracle?",
    reading="Above 0: towards; below 0: away. It is descriptive and has no part in the verdict.",
    low="moved away from the oracle",
    high="moved towards the oracle",
    score=score_shift,
    why_descriptive=(
        "M3 says whether unlearning moved forget records towards the oracle more than it moved held-out ones."
    ),
    value_by_map=average_shift,
    needs=("oracle", "original"),
    paper_null=0.0,
    paper_rule="A shift says which way records moved, not whether they arrived.",
)
