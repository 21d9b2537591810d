"""Every method on one dataset: settings -> cells of the studies' grid -> models, audits and peers' metrics.

Here stand the kinds of data and models: their methods, what they give to metrics, their architecture and batch size.
"""

from collections.abc import Mapping
from typing import Any

from ruler.metrics.peers import NEEDS, PEERS, PREFIXES

_STATES = tuple(f"{side}_{what}" for side in ("forget", "retain", "held_out") for what in ("states", "groups"))
_TOKENS = ("forget_tokens", "held_out_tokens", "forget_patches")
ANSWERS = ("paraphrased_tokens", "perturbed_tokens")
_PREDICTIONS = tuple(
    f"{side}_{what}" for side in ("forget", "retain", "held_out") for what in ("predictions", "labels")
)
GIVEN = {
    "classifier": (*_PREDICTIONS, *_STATES, "weights", "relearn_accuracies", "device"),
    "text": (*_STATES, "weights", "device"),
    "prompts": (*_TOKENS, *ANSWERS, "forget_states", "forget_groups", "weights"),
}
"""What a model gives to peers' metrics, by its name in `NEEDS`: classifiers, masked and causal language models."""
MEASURED = {
    "classifier": ("oracle_", "original_", "random_", "oracles_", "originals_"),
    "text": ("oracle_", "original_"),
    "prompts": ("oracle_", "original_"),
}
"""Whose numbers are measured besides. A method is repeated on other originals (``shadows_``) only for metrics that are
named and need it."""
FITTING = {
    "classifier": ("any", "classifier"),
    "text": ("any", "language"),
    "prompts": ("any", "language", "preferences"),
}
"""Kinds of methods for each; retraining is the training of the original, whatever the model."""
ARCHITECTURES = {"table": "tabular_mlp", "images": "small_cnn", "text": "bert_mlm", "prompts": "causal_lm"}
SEVERAL = ("oracles_", "originals_", "shadows_")
"""Whose numbers are those of the other seeds' models."""
_SMALLEST_BATCH, _STEPS = 16, 16
_LARGEST_BATCH = {"images": 128, "text": 16, "prompts": 32}


def choose_batch(n_train: int, kind: str = "table") -> int:
    """Batch size of training and unlearning: 256 (images 128, prompts 32, texts 16), or a sixteenth of the records.

    A sixteenth is at least 16.

    Example:
        >>> choose_batch(455), choose_batch(100_000)
        (28, 256)
    """
    most = _LARGEST_BATCH.get("images" if kind == "faces" else kind, 256)
    return min(most, max(_SMALLEST_BATCH, n_train // _STEPS))


def list_needed(metrics: tuple[str, ...]) -> set[str]:
    """Names of all that these metrics need or take, without prefixes, and the prefixes themselves.

    Example:
        >>> sorted(list_needed(("zrf",)))
        ['forget_predictions', 'random_']
    """
    names = (name for metric in metrics for name in (*PEERS[metric].needs, *PEERS[metric].takes))
    return {part for name in names for part in _split_prefix(name)} - {""}


def explain_missing(metric: str, given: Mapping[str, Any]) -> str:
    """Why such models cannot be measured by a metric, in words rather than the names of `NEEDS`; empty if they can.

    Example:
        >>> explain_missing("min_k", {"weights": 1})
        'It needs how likely each token of the forget records is, which models of this kind do not tell.'
    """
    lacking = []
    for prefix, name in (_split_prefix(need) for need in PEERS[metric].needs if given.get(need) is None):
        words = NEEDS.get(name, name)
        lacking.append(words if given.get(name) is None else f"{words}, {PREFIXES[prefix]}")
    listed = " and ".join(dict.fromkeys(lacking))
    return f"It needs {listed}, which models of this kind do not tell." if lacking else ""


def _split_prefix(need: str) -> tuple[str, str]:
    prefix = next((prefix for prefix in PREFIXES if need.startswith(prefix)), "")
    return prefix, need.removeprefix(prefix)
