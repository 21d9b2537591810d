"""What the controls say, read off their numbers by rule."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ruler.paper.names import count_people, name_draw, title_of

if TYPE_CHECKING:
    import pandas as pd

FACE_RULES = (
    "Not memorisation: the oracle was never trained on these faces, so what M4 has there too comes from the faces and "
    "not from training. Original minus oracle is read as an effect of training where its 95% interval leaves out zero; "
    "it is taken over seeds and speaks of these identities alone.",
    "Chance of the identities: M4 within the range of 95% of other sets of about the same size is what so few "
    "identities give.",
    "The paper's M4: where that range does not hold it, the choice of identities alone does not explain it in this "
    "setting.",
)
_ALONE = {"single": "one alone", "pair": "two alone"}
_NO_PEERS = (
    " These are random sets of several identities, at times with the most frequent among them: it is not a test among "
    "single identities of that size, for no other has as many images."
)
_PEERS = {
    "single": "Other identities alone, of any number of images,",
    "pair": "Other pairs of identities, of any number of images,",
}
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
        f"{_name_set(*keys)} ({count_people(values['n_groups_mean'], values['n_forget_mean'])}): "
        f"{_read_training(values)}{_read_held_out(values)} {_read_placebo(values, keys[0])}"
        f"{_NO_PEERS if keys[0] == 'most_frequent' else ''}{_read_published(values)}"
        for keys, values in _split(numbers, "forget_choice", "forget_fraction")
    ]


def read_chance(numbers: "pd.DataFrame") -> str:
    """How far few identities stray from 0.50 by chance: one, two, and the smallest random sets; empty if not known.

    Args:
        numbers: Tidy numbers of the face controls.
    """
    parts, is_pair_known = [], False
    for (choice, fraction), values in sorted(_split(numbers, "forget_choice", "forget_fraction"), key=_put_few_first):
        low, high = values["m4_placebo_low_mean"], values["m4_placebo_high_mean"]
        if choice in _ALONE and not math.isnan(low):
            parts.append(f"{_ALONE[choice]} from {low:.3f} to {high:.3f}")
            is_pair_known |= choice == "pair"
        is_smallest = choice == "random" and fraction == numbers["forget_fraction"].min()
        if is_smallest and not math.isnan(low):
            parts.append(
                f"random sets grown to {100 * fraction:g}% of the images, of one or several identities, from "
                f"{low:.3f} to {high:.3f}"
            )
    if not parts:
        return ""
    return (
        f"How far few identities stray from 0.50 by chance, 95% of sets: {'; '.join(parts)}."
        f"{'' if is_pair_known else ' Sets of exactly two were not measured apart.'}"
    )


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


def _put_few_first(reading: tuple[tuple[Any, ...], Values]) -> tuple[Any, ...]:
    choice, fraction = reading[0]
    return choice != "single", choice != "pair", fraction


def _put_original_first(reading: tuple[tuple[Any, ...], Values]) -> tuple[Any, ...]:
    fraction, method = reading[0]
    return fraction, method != "original"


def _name_set(forget_choice: str, forget_fraction: float) -> str:
    name = name_draw(forget_choice, forget_fraction)
    return f"random, {name}" if forget_choice == "random" else name


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


def _read_placebo(values: Values, forget_choice: str) -> str:
    low, high = values["m4_placebo_low_mean"], values["m4_placebo_high_mean"]
    if math.isnan(low) or math.isnan(high):
        return "Placebo sets were not measured."
    peers = _PEERS.get(forget_choice, "Other sets of this size")
    place = "within" if low <= values["m4_original_mean"] <= high else "beyond"
    p_value = values["m4_original_p_combined"]
    p_text = "" if math.isnan(p_value) else f" (combined p = {p_value:.3f})"
    return f"{peers} stray from {low:.3f} to {high:.3f} by chance: the original's M4 lies {place} that{p_text}."


def _read_published(values: Values) -> str:
    holds = values.get("m4_placebo_holds_paper", math.nan)
    if math.isnan(holds):
        return ""
    return f" The paper's M4 of {values['m4_original_mean_paper']:.3f} lies {'within' if holds else 'beyond'} it."


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
