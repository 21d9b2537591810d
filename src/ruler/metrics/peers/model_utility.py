"""Model utility: does the model still know what it should?"""

import math
from collections.abc import Mapping

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue
from ruler.metrics.peers.robustness import harmonic_mean
from ruler.metrics.peers.truth_ratio import compare_answers

PARTS = ("retain", "real_authors", "world_facts")
NUMBERS = ("probability", "rouge", "truth_ratio")


def measure_part(
    tokens: TokenReading,
    perturbed_tokens: TokenReading,
    rouge: float,
    *,
    paraphrased_tokens: TokenReading | None = None,
    is_choice: bool = False,
) -> dict[str, float]:
    """The three numbers of one part of the utility, each in [0, 1], by name.

    Probability is the mean of p^(1/length), for a choice between answers divided by its sum over all of them; truth
    ratio is the mean of max(0, 1 - truth ratio).

    Args:
        tokens: The true answers of n records.
        perturbed_tokens: Their false answers, k successive rows per record.
        rouge: ROUGE-L recall on these records.
        paraphrased_tokens: Paraphrases of the true answers; the answers themselves if there are none.
        is_choice: Compare the true answer with the false ones, as for real authors and world facts.

    Example:
        >>> true, false = (TokenReading(np.log([[p]]), np.ones((1, 1), dtype=bool)) for p in (0.6, 0.3))
        >>> {name: round(value, 3) for name, value in measure_part(true, false, 0.9, is_choice=True).items()}
        {'probability': 0.667, 'rouge': 0.9, 'truth_ratio': 0.5}
    """
    true, false = np.exp(-tokens.losses), np.exp(-perturbed_tokens.losses).reshape(len(tokens), -1)
    chance = true / (true + false.sum(axis=1)) if is_choice else true
    ratios = compare_answers(tokens if paraphrased_tokens is None else paraphrased_tokens, perturbed_tokens)
    return {
        "probability": float(chance.mean()),
        "rouge": rouge,
        "truth_ratio": float(np.maximum(0, 1 - ratios).mean()),
    }


def model_utility(utility: Mapping[str, Mapping[str, float]]) -> PeerValue:
    """Does the model still answer on what it should know? Harmonic mean of nine numbers, in [0, 1].

    Args:
        utility: By part (retain, real_authors, world_facts) what `measure_part` gives.

    Example:
        >>> part = {"probability": 0.5, "rouge": 0.5, "truth_ratio": 0.5}
        >>> model_utility({"retain": part, "real_authors": part, "world_facts": part}).value
        0.5
    """
    missing = [f"{part} {name}" for part in PARTS for name in NUMBERS if name not in utility.get(part, {})]
    if missing:
        raise InputError(f"utility must hold nine numbers; got none for {', '.join(missing)}.")
    values = [utility[part][name] for part in PARTS for name in NUMBERS]
    if any(math.isnan(value) for value in values):
        return PeerValue(math.nan, reason="One of the nine numbers has no value.")
    return PeerValue(harmonic_mean(values))


MODEL_UTILITY = Peer(
    title="Model utility",
    question="Does the model still answer on what it should know?",
    compute=model_utility,
    range=(0, 1),
    knowledge=0,
    why_no_null="It says nothing of forgetting; compare with the oracle's.",
    source="TOFU (Maini et al., 2024)",
)
