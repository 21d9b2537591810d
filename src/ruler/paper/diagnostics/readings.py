"""What the controls say, read off their numbers by rule."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ruler.paper.names import title_of

if TYPE_CHECKING:
    import pandas as pd

FACE_RULES = (
    "Not memorisation: the oracle was never trained on these faces, so what M4 has there too comes from the faces and "
    "not from training. Original minus oracle is read as an effect of training where its 95% interval leaves out zero.",
    "Chance of the identities: M4 within the range of 95% of other sets of about the same size is what so few "
    "identities give.",
)
LEAK_RULE = "The split by row is said to move M4 where the 95% interval of the difference leaves out zero."
Values = Mapping[str, float]


def read_face_controls(numbers: "pd.DataFrame") -> list[str]:
    """A sentence or two for each choice of identities and forget fraction.

    Args:
        numbers: Tidy numbers of the face controls.

    Returns:
        Readings in the order of the numbers.
    """
    return [
        f"{title_of(keys[0])}, {100 * keys[1]:g}% ({_describe_set(values)}): {_read_training(values)}"
        f"{_read_held_out(values)} {_read_placebo(values)}"
        for keys, values in _split(numbers, "forget_choice", "forget_fraction")
    ]


def read_leak(numbers: "pd.DataFrame") -> list[str]:
    """A sentence for each forget fraction and model.

    Args:
        numbers: Tidy numbers of the clinical leak.

    Returns:
        Readings in the order of the numbers.
    """
    return [
        f"{100 * keys[0]:g}%, {title_of(keys[1]).lower()} model: {_read_difference(values)}"
        for keys, values in sorted(_split(numbers, "forget_fraction", "method"), key=_put_original_first)
    ]


def _split(numbers: "pd.DataFrame", *keys: str) -> Iterator[tuple[tuple[Any, ...], Values]]:
    for place, part in numbers.groupby(list(keys), sort=False):
        yield tuple(place), dict(zip(part["column"], part["value"], strict=True))


def _put_original_first(reading: tuple[tuple[Any, ...], Values]) -> tuple[Any, ...]:
    fraction, method = reading[0]
    return fraction, method != "original"


def _describe_set(values: Values) -> str:
    identities, images = values["n_groups_mean"], values["n_forget_mean"]
    count = "identities not counted" if math.isnan(identities) else f"{identities:.0f} identities"
    return f"{count}, {images:.0f} images"


def _read_training(values: Values) -> str:
    original, oracle = values["m4_original_mean"], values["m4_oracle_mean"]
    difference, low, high = (values[f"m4_difference{end}"] for end in ("", "_low", "_high"))
    start = f"M4 is {original:.3f} in the original and {oracle:.3f} in the oracle"
    if math.isnan(low):
        return f"{start}; too few seeds to tell the two apart."
    start = f"{start}, a difference of {difference:+.3f} ({low:+.3f} to {high:+.3f})"
    if low > 0:
        return f"{start}: training on them raises it, {_tell_share(original, difference)}"
    if high < 0:
        return f"{start}: training on them lowers it; a high M4 is not memorisation."
    return f"{start}: as much without training on them, so not memorisation."


def _read_held_out(values: Values) -> str:
    held_out = values["m4_held_out_mean"]
    return "" if math.isnan(held_out) else f" Identities that neither model saw have {held_out:.3f}."


def _tell_share(original: float, difference: float) -> str:
    if original <= 0.5:
        return "to a value that is not above 0.50."
    share = difference / (original - 0.5)
    if round(share, 2) >= 1:
        return "by all of its distance from 0.50."
    return f"by {share:.0%} of its distance from 0.50; the rest is there without it and is not memorisation."


def _read_placebo(values: Values) -> str:
    low, high = values["m4_placebo_low_mean"], values["m4_placebo_high_mean"]
    if math.isnan(low) or math.isnan(high):
        return "Placebo sets were not measured."
    place = "within" if low <= values["m4_original_mean"] <= high else "beyond"
    p_value = values["m4_original_p_combined"]
    p_text = "" if math.isnan(p_value) else f" (combined p = {p_value:.3f})"
    return (
        f"Other sets of this size stray from {low:.3f} to {high:.3f} by chance: the original's M4 lies "
        f"{place} that{p_text}."
    )


def _read_difference(values: Values) -> str:
    distinct, rows = values["m4_distinct_mean"], values["m4_rows_mean"]
    difference, low, high = (values[f"m4_leak{end}"] for end in ("", "_low", "_high"))
    start = f"M4 {distinct:.3f} by distinct text, {rows:.3f} by row"
    if math.isnan(low):
        return f"{start}; too few seeds of both to tell them apart."
    start = f"{start}, a difference of {difference:+.3f} ({low:+.3f} to {high:+.3f})"
    if low <= 0 <= high:
        return f"{start}: no effect of the leak beyond the seeds' noise."
    return f"{start}: the leak {'raises' if low > 0 else 'lowers'} M4."
