import json
import math

import numpy as np
import pandas as pd
import pytest

from ruler.paper.compare.figures import (
    LEFT,
    RIGHT,
    draw_cost,
    draw_kept,
    draw_layers,
    draw_ranks,
    find_tones,
    place_labels,
)

TABLE = pd.DataFrame(
    [
        # the best in both, one that is beaten, one that is cheaper and leaves more, one without a number
        {"title": "A", "method": "retrain", "remaining": 0.05, "held_out_accuracy": 0.95, "cost": 1.0},
        {"title": "B", "method": "ssd", "remaining": 0.20, "held_out_accuracy": 0.90, "cost": 2.0},
        {"title": "C", "method": "jit", "remaining": 0.10, "held_out_accuracy": 0.93, "cost": 0.01},
        {"title": "D", "method": "cf_k", "remaining": math.nan, "held_out_accuracy": 0.9, "cost": 0.1},
        {"title": "O", "method": "original", "remaining": 0.30, "held_out_accuracy": 0.96, "cost": 0.0},
    ]
)
TONES = dict.fromkeys("ABCDO", "residual")


def count_turns(path: str) -> int:
    return path.count("L") + 1


def test_the_frontier_joins_what_no_other_beats_in_both() -> None:
    kept = draw_kept(TABLE, TONES, "held_out_accuracy")
    assert kept is not None
    assert [mark.title for mark in kept.marks] == ["A", "B", "C", "O"]  # D has no number
    assert count_turns(kept.frontier) == 2  # O keeps most, A leaves least
    assert {mark.title for mark in kept.marks if mark.is_reference} == {"A", "O"}
    cost = draw_cost(TABLE, TONES)
    assert cost is not None
    assert [mark.title for mark in cost.marks] == ["A", "B", "C"]  # nothing is done to the original
    assert count_turns(cost.frontier) == 2  # C is cheapest, A leaves least
    assert cost.marks[0].x == cost.one
    assert [tick.label for tick in cost.x_ticks] == ["0.01", "0.1", "1"]


def test_broken_models_stand_at_the_edge_and_are_counted() -> None:
    table = pd.concat([TABLE, TABLE.assign(title="E", method="salun", held_out_accuracy=0.1).head(1)])
    kept = draw_kept(table, TONES | {"E": "damaged"}, "held_out_accuracy")
    assert kept is not None
    assert kept.marks[-1].x == LEFT
    assert kept.note.startswith("1 model below 0.")


def test_labels_cover_neither_each_other_nor_dots_and_stay_on_paper() -> None:
    rng = np.random.default_rng(0)
    dots = [(float(x), float(y)) for x, y in rng.uniform((100, 60), (700, 360), (15, 2))] + [(690.0, 200.0)] * 4
    texts = [f"Method {place}" for place in range(len(dots))]
    boxes = []
    for (x, y, anchor, _), text in zip(place_labels(dots, texts), texts, strict=True):
        wide = 6.7 * len(text)
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        boxes.append((left, y - 10, left + wide, y + 2))
    assert all(box[0] >= LEFT and box[2] <= RIGHT + 10 for box in boxes)
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert not any(one[0] < x < one[2] and one[1] < y < one[3] for x, y in dots)


def test_a_tie_of_verdicts_shows_the_worse() -> None:
    runs = pd.DataFrame(
        {"title": ["A"] * 3 + ["B"] * 2, "verdict": ["erased", "erased", "residual", "erased", "residual"]}
    )
    assert find_tones(runs) == {"A": "erased", "B": "residual"}


def test_layers_are_drawn_beside_the_original_and_others_are_left_out() -> None:
    def run(title: str, method: str, values: list[float]) -> dict:
        layers = dict(zip(("first", "last"), values, strict=False))
        return {"title": title, "method": method, "layers": json.dumps(layers) if values else ""}

    rows = [
        run("O", "original", [0.6, 0.7]),
        run("A", "ssd", [0.5, 0.5]),
        run("A", "ssd", [0.5, 0.6]),
        run("B", "jit", []),
    ]
    found = draw_layers(pd.DataFrame(rows), TONES)
    assert found is not None
    drawn = [(one.title, len(one.runs), bool(one.original)) for one in found.profiles]
    assert drawn == [("O", 1, False), ("A", 2, True)]
    assert found.profiles[1].words == "first 0.50, last 0.55"
    start = found.profiles[1].mean.split(" ")[1].removesuffix("L")
    assert float(start) == found.middle
    assert draw_layers(pd.DataFrame(rows[3:]), TONES) is None


def test_ranks_leave_out_methods_without_a_number_and_say_so() -> None:
    values = pd.DataFrame({"A": [0.1, 0.1, 0.2], "B": [0.2, 0.3, 0.3], "C": [0.3, 0.4, 0.4], "D": [0.1, math.nan, 0.1]})
    found = draw_ranks(values, TONES, "Left", "runs")
    assert found is not None
    assert [(one.title, one.text) for one in found.entries] == [("A", "A 1.0"), ("B", "B 2.0"), ("C", "3.0 C")]
    assert "Not ranked, since a number is missing: D." in found.sentence
    turned = draw_ranks(values, TONES, "Kept", "runs", is_less_better=False)
    assert turned is not None
    assert [one.title for one in turned.entries] == ["C", "B", "A"]
    assert draw_ranks(values.iloc[:1], TONES, "Left", "runs").sentence.startswith("Ranks of 1 runs: a test needs")
    assert draw_ranks(values[["A"]], TONES, "Left", "runs") is None


def test_the_critical_difference_is_drawn_to_scale() -> None:
    values = pd.DataFrame(np.arange(30.0).reshape(10, 3), columns=["A", "B", "C"])
    found = draw_ranks(values, TONES, "Left", "runs")
    assert found is not None
    assert found.difference == pytest.approx(170 * 2.343 * math.sqrt(3 * 4 / 60), rel=1e-3)
    assert found.margin == 0
    long = draw_ranks(values.rename(columns={"A": "A" * 60}), TONES, "Left", "runs")
    assert long is not None
    assert long.margin == pytest.approx(6.7 * 64 - 206)  # the label and its rank
    assert found.bars == ((227.0, 403.0, 50.0), (397.0, 573.0, 57.0))  # 1.05 apart: neighbours do not differ
