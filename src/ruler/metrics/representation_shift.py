"""M3, representation shift: did unlearning move forget records towards the oracle or away from it?"""

from typing import Any

from ruler.core.types import FloatArray
from ruler.metrics.oracle_similarity import compare_rows, oracle_similarity


def representation_shift(unlearned_forget: Any, original_forget: Any, oracle_forget: Any) -> FloatArray:
    """How much closer to the oracle is each forget record after unlearning than before?

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        original_forget: (n, p) the same records in the original model.
        oracle_forget: (n, p) the same records in the oracle.

    Returns:
        (n,) shifts in [-2, 2], one a record; their mean is M3.

    Raises:
        InputError: As `cosine_similarity`.

    Example:
        >>> x, y = [1.0, 0.0], [0.0, 1.0]
        >>> representation_shift([x, y], [y, y], [x, y]).tolist()
        [1.0, 0.0]
    """
    after = oracle_similarity(unlearned_forget, oracle_forget)
    before = compare_rows(original_forget, oracle_forget, ("original_forget", "oracle_forget"))
    return after - before


def m3(unlearned_forget: Any, original_forget: Any, oracle_forget: Any) -> float:
    """On average, did unlearning move forget records towards the oracle? (M3, Eq. 4)

    M3 = mean over forget records of sim(unlearned, oracle) - sim(original, oracle). Positive: closer, as intended;
    negative: further away; near 0: hardly moved.

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        original_forget: (n, p) the same records in the original model.
        oracle_forget: (n, p) the same records in the oracle.

    Returns:
        A number in [-2, 2].

    Raises:
        InputError: As `cosine_similarity`.

    Example:
        >>> x, y = [1.0, 0.0], [0.0, 1.0]
        >>> m3([x, y], [y, y], [x, y])
        0.5
    """
    return float(representation_shift(unlearned_forget, original_forget, oracle_forget).mean())
