"""The table of peers' metrics: to add one of ours, write it in a file of its own and add it to `OWN`.

Users add theirs without editing this package: by an entry point of the group "ruler.peers" that names a `Peer`, or by
``PEERS.register(name, peer)``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ruler.core.registry import Registry
from ruler.metrics.peers.activation_distance import ACTIVATION_DISTANCE
from ruler.metrics.peers.aus import AUS
from ruler.metrics.peers.cka import CKA, CKA_DEBIASED
from ruler.metrics.peers.completeness import COMPLETENESS
from ruler.metrics.peers.exact_memorization import EXACT_MEMORIZATION
from ruler.metrics.peers.extraction_strength import EXTRACTION_STRENGTH
from ruler.metrics.peers.forget_quality import FORGET_QUALITY
from ruler.metrics.peers.iam import IAM
from ruler.metrics.peers.information_difference import INFORMATION_DIFFERENCE
from ruler.metrics.peers.js_divergence import JS_DIVERGENCE
from ruler.metrics.peers.klom import KLOM
from ruler.metrics.peers.linear_probe import LINEAR_PROBE
from ruler.metrics.peers.lira import LIRA, U_LIRA
from ruler.metrics.peers.logit_lens import LOGIT_LENS, LOGIT_LENS_DEPTH
from ruler.metrics.peers.min_k import MIN_K
from ruler.metrics.peers.min_k_plus import MIN_K_PLUS
from ruler.metrics.peers.model_utility import MODEL_UTILITY
from ruler.metrics.peers.neighbor_overlap import NEIGHBOR_OVERLAP
from ruler.metrics.peers.nomus import NOMUS
from ruler.metrics.peers.peer import NEEDS, PREFIXES, Peer, PeerValue
from ruler.metrics.peers.priv_leak import PRIV_LEAK
from ruler.metrics.peers.probability import PROBABILITY
from ruler.metrics.peers.probe_recovery import PROBE_RECOVERY
from ruler.metrics.peers.procrustes import PROCRUSTES
from ruler.metrics.peers.relearn_time import ANAMNESIS_INDEX, RELEARN_TIME
from ruler.metrics.peers.rmia import RMIA
from ruler.metrics.peers.rouge import ROUGE_L
from ruler.metrics.peers.truth_ratio import TRUTH_RATIO
from ruler.metrics.peers.tug_of_war import TUG_OF_WAR
from ruler.metrics.peers.uds import UDS
from ruler.metrics.peers.weight_distance import WEIGHT_DISTANCE
from ruler.metrics.peers.zrf import ZRF

OWN: dict[str, Peer] = {
    "probability": PROBABILITY,
    "truth_ratio": TRUTH_RATIO,
    "forget_quality": FORGET_QUALITY,
    "model_utility": MODEL_UTILITY,
    "rouge_l": ROUGE_L,
    "extraction_strength": EXTRACTION_STRENGTH,
    "exact_memorization": EXACT_MEMORIZATION,
    "min_k": MIN_K,
    "min_k_plus": MIN_K_PLUS,
    "priv_leak": PRIV_LEAK,
    "logit_lens": LOGIT_LENS,
    "logit_lens_depth": LOGIT_LENS_DEPTH,
    "cka": CKA,
    "cka_debiased": CKA_DEBIASED,
    "linear_probe": LINEAR_PROBE,
    "uds": UDS,
    "procrustes": PROCRUSTES,
    "neighbor_overlap": NEIGHBOR_OVERLAP,
    "information_difference": INFORMATION_DIFFERENCE,
    "probe_recovery": PROBE_RECOVERY,
    "zrf": ZRF,
    "js_divergence": JS_DIVERGENCE,
    "activation_distance": ACTIVATION_DISTANCE,
    "completeness": COMPLETENESS,
    "tug_of_war": TUG_OF_WAR,
    "nomus": NOMUS,
    "aus": AUS,
    "rmia": RMIA,
    "lira": LIRA,
    "u_lira": U_LIRA,
    "klom": KLOM,
    "iam": IAM,
    "weight_distance": WEIGHT_DISTANCE,
    "relearn_time": RELEARN_TIME,
    "anamnesis_index": ANAMNESIS_INDEX,
}
PEERS: Registry[Peer] = Registry("peer metric", OWN, group="ruler.peers", type=Peer)

__all__ = ["NEEDS", "OWN", "PEERS", "PREFIXES", "Peer", "PeerValue", "measure_peers"]


def measure_peers(given: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, PeerValue]:
    """All peers' metrics, or the named ones, of one model.

    Args:
        given: What is known, by the names in `NEEDS`. A metric that needs more is NaN, with the reason.
        names: Keys of `PEERS`; None takes all.

    Example:
        >>> import numpy as np
        >>> from ruler.core.types import TokenReading
        >>> reading = TokenReading(np.log([[0.5, 0.5]]), np.array([[False, True]]))
        >>> found = measure_peers({"forget_tokens": reading}, ["probability", "truth_ratio"])
        >>> round(found["probability"].value, 6), found["truth_ratio"].reason
        (0.5, 'It needs paraphrased_tokens and perturbed_tokens, which must be given.')
    """
    return {name: PEERS[name].measure(given) for name in (PEERS if names is None else names)}
