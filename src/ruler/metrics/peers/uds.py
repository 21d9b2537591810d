"""UDS, the unlearning depth score: through how many layers is the knowledge gone?"""

from collections.abc import Mapping

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, PatchReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records

LEAST_EFFECT = 0.05
"""Nats by which the oracle's states must lower the answer for a layer to count."""


def uds(forget_patches: PatchReading, oracle_forget_patches: PatchReading) -> PeerValue:
    """How much of the knowledge that the oracle lacks is gone from the model's layers? In [0, 1]; 1 is erased.

    Per record and layer, d1 is by how much the original's mean log-probability of the asked tokens falls when the
    layer's states come from the oracle, d2 when they come from the model. Layers with d1 > 0.05 count, by
    sum d1 clip(d2 / d1, 0, 1) / sum d1. A record without such a layer has no value. The mean over records.

    Args:
        forget_patches: ``patch_layers(original, model, records)``.
        oracle_forget_patches: ``patch_layers(original, oracle, records)``, the same for every model.

    Example:
        >>> oracle = PatchReading(np.zeros(1), {"0": np.array([-1.0]), "1": np.array([-3.0])})
        >>> uds(PatchReading(np.zeros(1), {"0": np.array([-1.0]), "1": np.array([0.5])}), oracle).value
        0.25
    """
    given = (forget_patches, oracle_forget_patches)
    found, reference = ({name: one.base - own for name, own in one.layers.items()} for one in given)
    return weigh_depth(found, reference)


def weigh_depth(found: Mapping[str, FloatArray], reference: Mapping[str, FloatArray]) -> PeerValue:
    """The score from d2 and d1 by layer, (n,) each.

    Example:
        >>> weigh_depth({"0": np.array([0.5, 0.5])}, {"0": np.array([1.0, 0.01])}).records.tolist()
        [0.5, nan]
    """
    if list(found) != list(reference) or not found:
        raise InputError(f"layers must be the same in both models, at least one; got {len(found)}, {len(reference)}.")
    lost, largest = np.array(list(found.values())), np.array(list(reference.values()))  # (layers, n)
    if lost.shape != largest.shape:
        raise InputError(f"records must be the same in both models; got {lost.shape[1]} and {largest.shape[1]}.")
    weight = np.where(largest > LEAST_EFFECT, largest, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(weight > 0, np.clip(lost / largest, 0, 1), 0.0)
        records = (weight * share).sum(axis=0) / weight.sum(axis=0)
        layers = (weight * share).sum(axis=1) / weight.sum(axis=1)
    whole = average_records(records, why_none="In no layer do the oracle's states lower an answer by over 0.05 nats.")
    return PeerValue(whole.value, records, dict(zip(found, layers.tolist(), strict=True)), whole.reason)


UDS = Peer(
    title="UDS",
    question="What share of the knowledge that the oracle lacks is gone from the layers?",
    compute=uds,
    range=(0, 1),
    knowledge=-1,
    null=1.0,
    source="Unlearning depth score, 2026",
)
