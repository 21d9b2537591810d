"""ROUGE-L recall: how much of the true answers does the model write by itself?"""

import re
from collections.abc import Sequence

import numpy as np

from ruler.core.errors import InputError
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def rouge_l(forget_answers: Sequence[str], forget_generations: Sequence[str]) -> PeerValue:
    """What share of the true answer's words does the generated one have, in the same order? In [0, 1].

    Longest common subsequence of words over the words of the true answer; words are runs of a-z and 0-9 in lower case,
    as they are. Public code cuts word endings first: on TOFU's published logs it gives 0.00 to 0.01 more. A true answer
    without a word has no value.

    Args:
        forget_answers: n true answers.
        forget_generations: What the model writes to the same prompts.

    Example:
        >>> rouge_l(["Jane Austen wrote it."], ["It was Jane who wrote it"]).value
        0.75
    """
    if len(forget_answers) != len(forget_generations):
        raise InputError(
            f"forget_generations must be one per answer, {len(forget_answers)}; got {len(forget_generations)}."
        )
    records = [
        _common_length(true, own) / len(true) if true else np.nan
        for true, own in zip(map(_split, forget_answers), map(_split, forget_generations), strict=True)
    ]
    return average_records(np.array(records, dtype=np.float64), why_none="No true answer has a word.")


def _split(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _common_length(first: list[str], second: list[str]) -> int:
    """Length of the longest common subsequence."""
    best = [0] * (len(second) + 1)
    for word in first:
        above = best.copy()
        for place, other in enumerate(second):
            best[place + 1] = above[place] + 1 if word == other else max(above[place + 1], best[place])
    return best[-1]


ROUGE_L = Peer(
    title="ROUGE-L recall",
    question="How much of the true answers does the model write by itself?",
    compute=rouge_l,
    range=(0, 1),
    source="Lin, 2004; TOFU (Maini et al., 2024)",
)
