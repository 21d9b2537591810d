"""Truth ratio: does the model prefer false answers to the true one?"""

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def truth_ratio(paraphrased_tokens: TokenReading, perturbed_tokens: TokenReading) -> PeerValue:
    """Does the model find false answers as likely as a true one? Above 0; low means that it knows the true one.

    exp(loss of the paraphrased answer - mean loss of the perturbed ones), losses per token: the geometric mean of
    the false answers' p^(1/length) over that of the paraphrase, as in the public code and logs.

    Args:
        paraphrased_tokens: n records.
        perturbed_tokens: k rows per record, those of one record one after the other.

    Example:
        >>> true, false = (TokenReading(np.log([[p]]), np.ones((1, 1), dtype=bool)) for p in (0.5, 0.25))
        >>> truth_ratio(true, false).value
        0.5
    """
    return average_records(compare_answers(paraphrased_tokens, perturbed_tokens))


def compare_answers(paraphrased_tokens: TokenReading, perturbed_tokens: TokenReading) -> FloatArray:
    """The truth ratio (n,) of each record."""
    n_false, rest = divmod(len(perturbed_tokens), len(paraphrased_tokens))
    if rest or not n_false:
        raise InputError(
            "perturbed_tokens must have as many rows for every record; "
            f"got {len(perturbed_tokens)} rows for {len(paraphrased_tokens)} records."
        )
    false = perturbed_tokens.losses.reshape(-1, n_false).mean(axis=1)
    return np.asarray(np.exp(paraphrased_tokens.losses - false))


TRUTH_RATIO = Peer(
    title="Truth ratio",
    question="How likely are false answers, as a share of a true one?",
    compute=truth_ratio,
    range=(0, np.inf),
    knowledge=-1,
    source="TOFU (Maini et al., 2024)",
)
