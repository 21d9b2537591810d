"""A peer's metric: what it asks, what it needs, how its number is read, and how it is computed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, Literal

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, Predictions, RowsLike

NEEDS = {
    "forget_tokens": "how likely each token of the forget records is",
    "held_out_tokens": "how likely each token of the held-out records is",
    "paraphrased_tokens": "how likely each token of paraphrased answers to the forget records is",
    "perturbed_tokens": "how likely each token of false answers to them is, k successive rows per forget record",
    "forget_answers": "true answers of the forget records, as texts",
    "forget_generations": "what the model writes to the forget records' prompts, as texts",
    "forget_states": "vectors (n, p) of the forget records by layer",
    "held_out_states": "vectors (m, p) of the held-out records by layer",
    "forget_groups": "whose records the forget records are",
    "held_out_groups": "whose records the held-out records are",
    "retain_groups": "whose records the retain records are",
    "forget_patches": "what the original says of the forget records with the model's states put into it",
    "retain_states": "vectors (r, p) of the retain records by layer",
    "forget_predictions": "logits for the forget records, with their true classes",
    "retain_predictions": "logits for the retain records, with their true classes",
    "held_out_predictions": "logits for the held-out records, with their true classes",
    "forget_labels": "true classes of the forget records, in the order of their states",
    "retain_labels": "true classes of the retain records, likewise",
    "held_out_labels": "true classes of the held-out records, likewise",
    "device": "where torch fits probes, such as `cuda`; NumPy does without",
    "weights": "the weights, by name of parameter",
    "relearn_accuracies": "accuracy on the forget records after 0, 1, 2, ... epochs of training on them again",
    "utility": "probability, ROUGE and truth ratio on retained, real-author and world-fact records",
}
"""What metrics are computed from, by name; without a prefix, of the model that is judged."""

PREFIXES = {
    "oracle_": "of a model that was never trained on the forget records",
    "original_": "of the model before unlearning",
    "random_": "of an untrained model of the same kind",
    "oracles_": "of several oracles, as a list",
    "originals_": "of several models that were trained on the forget records, as a list",
    "shadows_": "of several such models after the same unlearning method, as a list",
}
"""Whose numbers they are, where not those of the model that is judged."""


@dataclass(frozen=True, eq=False)
class PeerValue:
    """The answer of a metric.

    Args:
        value: The aggregate; NaN where it cannot be computed.
        records: (n,) one number per forget record, NaN where a record has none; None for metrics of whole sets.
        layers: By layer, the aggregate there; empty for metrics that read no layers.
        reason: Why the aggregate is NaN, in one sentence.
    """

    value: float
    records: FloatArray | None = None
    layers: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    def __post_init__(self) -> None:
        if math.isnan(self.value) and not self.reason:
            raise InputError("reason must be given with a value of NaN; got none. Say why there is no number.")


Compute = Callable[..., PeerValue]


@dataclass(frozen=True, eq=False)
class Peer:
    """A metric of another tool or paper.

    Its name is its key in `PEERS`: lower-case letters, digits and underscores.

    Args:
        title: Its name for a reader.
        question: What its number answers.
        compute: Takes what it needs by name.
        needs: Names of what must be given, see `NEEDS`; by default the parameters of ``compute`` that have no default.
        takes: Names of what is used where it is given; by default the parameters whose default is None.
        range: The least and the largest value, both possible at least as limits.
        knowledge: Which end means that knowledge is left: 1 the high one, -1 the low one, 0 neither.
        null: The value of a model that never saw the forget records, where that is known beforehand; else NaN.
        why_no_null: Why there is none.
        source: Where it comes from.

    Example:
        >>> share = Peer("Share", "How much?", lambda hits: PeerValue(float(np.mean(hits))))
        >>> share.measure({"hits": [1, 0], "unused": 3}).value
        0.5
        >>> share.measure({}).reason
        'It needs hits, which must be given.'
    """

    title: str
    question: str
    compute: Compute
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    range: tuple[float, float] = (-math.inf, math.inf)
    knowledge: Literal[-1, 0, 1] = 1
    null: float = math.nan
    why_no_null: str = "It depends on the records; measure the oracle for comparison."
    source: str = ""

    def __post_init__(self) -> None:
        if not (self.needs or self.takes):
            known = [
                one for one in signature(self.compute).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD
            ]
            object.__setattr__(self, "needs", tuple(one.name for one in known if one.default is one.empty))
            object.__setattr__(self, "takes", tuple(one.name for one in known if one.default is None))

    def measure(self, given: Mapping[str, Any]) -> PeerValue:
        """Compute the metric from what is given by name; NaN with a reason if something lacks.

        Raises:
            InputError: Predictions of one side whose labels differ between models, so that records do not line up.
        """
        missing = [name for name in self.needs if given.get(name) is None]
        if missing:
            return PeerValue(math.nan, reason=f"It needs {' and '.join(missing)}, which must be given.")
        names = [*self.needs, *(name for name in self.takes if given.get(name) is not None)]
        found = {name: given[name] for name in names}
        _check_lined_up(found)
        return self.compute(**found)


def _check_lined_up(given: Mapping[str, Any]) -> None:
    """Refuse predictions of the same side in another order, as a shuffling loader gives them."""
    first: dict[str, tuple[str, Any]] = {}
    for name, value in given.items():
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, Predictions):
                known, labels = first.setdefault(name.removeprefix(prefix), (name, one.labels))
                if not np.array_equal(labels, one.labels):
                    raise InputError(
                        f"{name} must be of the same records in the same order as {known}; got other labels. "
                        "Read all models without shuffling."
                    )


def average_records(records: FloatArray, *, why_none: str = "No record has a value.") -> PeerValue:
    """The mean over records, without those that are NaN.

    Example:
        >>> average_records(np.array([1.0, np.nan, 2.0])).value
        1.5
    """
    known = records[~np.isnan(records)]
    return PeerValue(float(known.mean()) if len(known) else math.nan, records, reason="" if len(known) else why_none)


def average_layers(
    own: Mapping[str, RowsLike], other: Mapping[str, RowsLike], compare: Callable[[RowsLike, RowsLike], float]
) -> PeerValue:
    """The mean over layers of what compares the same records in two models, without layers where that is NaN.

    Raises:
        InputError: Layers that differ.

    Example:
        >>> average_layers({"a": [[1.0]], "b": [[3.0]]}, {"a": [[1.0]], "b": [[1.0]]}, lambda x, y: x[0][0] - y[0][0])
        PeerValue(value=1.0, records=None, layers={'a': 0.0, 'b': 2.0}, reason='')
    """
    if list(own) != list(other) or not own:
        raise InputError(f"states must be of the same layers in both models; got {len(own)} and {len(other)}.")
    layers = {name: compare(own[name], other[name]) for name in own}
    known = [value for value in layers.values() if not math.isnan(value)]
    if not known:
        return PeerValue(math.nan, None, layers, "In every layer all records have the same states.")
    return PeerValue(float(np.mean(known)), None, layers)
