"""Forget quality: do the truth ratios differ from the oracle's?"""

from ruler.core.types import TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue
from ruler.metrics.peers.truth_ratio import compare_answers


def forget_quality(
    paraphrased_tokens: TokenReading,
    perturbed_tokens: TokenReading,
    oracle_paraphrased_tokens: TokenReading,
    oracle_perturbed_tokens: TokenReading,
) -> PeerValue:
    """Do the truth ratios come from another distribution than the oracle's? p of the two-sample KS test, in [0, 1].

    A low p is evidence of a difference, on either side. A high p is no evidence of forgetting: few records give one
    too. Records of one author are not independent, which the test ignores.

    Example:
        >>> import numpy as np
        >>> one, two = (TokenReading(np.log(p * np.ones((4, 1))), np.ones((4, 1), dtype=bool)) for p in (0.5, 0.25))
        >>> round(forget_quality(one, two, two, one).value, 4), forget_quality(one, two, one, two).value
        (0.0286, 1.0)
    """
    from scipy.stats import ks_2samp  # loads slowly

    own = compare_answers(paraphrased_tokens, perturbed_tokens)
    other = compare_answers(oracle_paraphrased_tokens, oracle_perturbed_tokens)
    return PeerValue(float(ks_2samp(own, other).pvalue))


FORGET_QUALITY = Peer(
    title="Forget quality",
    question="How well do the truth ratios agree with the oracle's (p of a KS test)?",
    compute=forget_quality,
    range=(0, 1),
    knowledge=-1,
    why_no_null="A p-value is spread over [0, 1] if records are independent; those of one author are not.",
    source="TOFU (Maini et al., 2024)",
)
