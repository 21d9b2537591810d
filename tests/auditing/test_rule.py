"""The rule: every row of each of its tables, by findings made by hand."""

import inspect
import io
import math
import tokenize
from dataclasses import replace

import pytest
from tests.auditing.report.factory import make_report

from ruler.auditing import rule
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Given, LayerFinding, MetricControl, Part, Remaining
from ruler.auditing.rule import (
    POWER,
    SEEN,
    Judged,
    first,
    judge_contrast,
    judge_family,
    judge_report,
    judge_side,
    list_capable,
)
from ruler.auditing.settings import AuditSettings

NAN = math.nan
REPORT = make_report()
LIMIT = REPORT.settings.limit
FACTS = dict.fromkeys(
    ("invalid", "damaged", "no control", "blocked", "untouched", "flagged", "untested", "contradicted"), False
)


def remain(value, reach=0.05, *, scale="original", visibility=20.0, resolution=30.0):
    """An interval around a value."""
    ends = value - reach, value + reach, value - reach, value + reach
    return Remaining(value, *ends, scale, "loss", None, visibility, resolution)


CLEAN, MUCH, OPEN = remain(0.02), remain(0.9), remain(0.18)
BLIND = remain(0.02, resolution=POWER / LIMIT - 0.01)


def find(name="loss", *shares, place=0.9, spread=0.9, tail=0.9, effect=0.5, original=(NAN, NAN), control="held-out"):
    """A contrast's finding: what remains by its own and by the members' scale, and corrected p-values."""
    parts = {
        "place": Part(effect, (0.4, 0.6), place),
        "spread": Part(0.5, (0.4, 0.6), spread),
        "tail": Part(0.5, (0.4, 0.6), tail),
    }
    return replace(
        REPORT.metrics["loss"],
        name=name,
        family=CONTRASTS[name].family,
        remaining={f"{number}": one for number, one in enumerate(shares)},
        layers=(),
        control=MetricControl(control, 50, 100, *original),
        **parts,
    )


def judge(metric, **settings):
    report = replace(REPORT, settings=replace(AuditSettings(), **settings))
    return judge_contrast(metric, CONTRASTS[metric.name], report)


# one contrast


def test_the_first_row_that_holds_decides():
    assert first([("a", False), ("b", True), ("c", True)]) == "b"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (find("loss", MUCH, place=0.001, control="none"), Judged("inconclusive", "no control")),
        (find("loss", MUCH, place=0.001, effect=0.9), Judged("residual", "differs", ("place",))),
        (find("loss", CLEAN, spread=0.05, tail=0.01), Judged("residual", "differs", ("spread", "tail"))),
        (find("loss", CLEAN, CLEAN), Judged("erased", "within")),
        (find("loss", CLEAN, OPEN), Judged("inconclusive", "not within")),
        (find("loss", CLEAN, MUCH), Judged("inconclusive", "not within")),
        (find("loss", CLEAN, BLIND), Judged("erased", "within")),
        (find("loss", BLIND), Judged("inconclusive", "cannot show")),
        (find("loss"), Judged("inconclusive", "cannot show")),
        (find("m4"), Judged("inconclusive", "cannot show")),
    ],
)
def test_a_contrast(metric, expected):
    assert judge(metric) == expected


def test_a_difference_in_place_is_excused_if_it_is_shown_to_be_small_and_no_other_is():
    small = remain(0.1)
    assert judge(find("loss", small, place=0.001, effect=0.6)).verdict == "erased"
    assert judge(find("loss", small, place=0.001, effect=0.6), limit=0.14).verdict == "residual"
    assert judge(find("loss", small, place=0.001, tail=0.001, effect=0.6)) == Judged("residual", "differs", ("tail",))
    assert judge(find("loss", small, remain(0.3), place=0.001, effect=0.6)).verdict == "residual"
    weak = replace(remain(0.8), resolution=5.0)  # a layer or a scale that cannot clear may accuse
    assert judge(find("loss", small, weak, place=0.001, effect=0.6)).verdict == "residual"
    at = replace(weak, at_least=LIMIT)  # but not if it may be at the limit
    assert judge(find("loss", small, at, place=0.001, effect=0.6)).verdict == "erased"
    below = replace(weak, at_least=-0.9, at_most=-0.21)
    assert judge(find("loss", small, below, place=0.001, effect=0.4)).verdict == "displaced"


@pytest.mark.parametrize("part", ["place", "spread", "tail"])
def test_a_p_value_at_the_level_is_a_difference_and_one_above_is_none(part):
    assert judge(find("loss", OPEN, **{part: 0.05})).by == (part,)
    assert judge(find("loss", OPEN, **{part: 0.0501})).cause == "not within"
    assert judge(find("loss", OPEN, **{part: 0.05}), alpha=0.049).cause == "not within"
    assert judge(find("loss", OPEN, **{part: NAN})).cause == "not within"


@pytest.mark.parametrize(
    ("limits", "is_within"),
    [((-0.19, 0.19), True), ((-0.2, 0.1), False), ((-0.1, 0.2), False), ((-math.inf, 0.1), False), ((0.1, 0.19), True)],
)
def test_both_one_sided_limits_must_lie_inside(limits, is_within):
    low, high = limits
    one = replace(CLEAN, at_least=low, at_most=high, low=-0.5, high=0.5)  # the two-sided ones do not matter
    assert one.is_within(LIMIT) == is_within
    assert (judge(find("loss", one)).verdict == "erased") == is_within


def test_who_can_show_the_limit():
    at = remain(0.0, visibility=SEEN, resolution=POWER / LIMIT)
    assert list_capable(find("loss", at), LIMIT) == [at]
    assert not list_capable(find("loss", at), LIMIT - 0.001)
    assert not list_capable(find("loss", replace(at, visibility=SEEN - 0.01)), LIMIT)
    assert not list_capable(find("loss", replace(at, resolution=NAN, visibility=NAN)), LIMIT)
    by_layer = replace(
        find("readout", CLEAN),
        layers=tuple(LayerFinding(name, 0.5, (0, 1), 0.5, {"original": one}) for name, one in (("a", at), ("b", OPEN))),
    )
    assert list_capable(by_layer, LIMIT) == [at, OPEN]  # every layer, not only the one that is told
    assert judge(by_layer).cause == "not within"


# old memory or a new mark


@pytest.mark.parametrize(
    ("name", "parts", "effect", "original", "shares", "expected"),
    [
        ("loss", ["tail"], 0.2, (NAN, NAN), (), "residual"),
        ("loss", ["place", "tail"], 0.2, (NAN, NAN), (), "residual"),
        ("loss", ["place"], 0.8, (0.9, 0.5), (), "residual"),  # a ruler knows which side memory is on
        ("loss", ["place"], 0.2, (0.1, 0.001), (), "displaced"),
        ("m2", ["place"], 0.2, (0.1, 0.001), (), "residual"),  # where the original has it
        ("m2", ["place"], 0.8, (0.1, 0.001), (), "displaced"),
        ("m2", ["place"], 0.2, (0.1, 0.051), (), "displaced"),  # which showed nothing
        ("m2", ["place"], 0.2, (NAN, NAN), (), "residual"),  # where memory puts it
        ("m2", ["place"], 0.8, (NAN, NAN), (), "displaced"),
        ("m4", ["place"], 0.8, (NAN, NAN), (), "residual"),
        ("m4", ["place"], 0.2, (NAN, NAN), (), "displaced"),
        ("norm", ["place"], 0.2, (NAN, NAN), (), "residual"),  # either side may be memory
        ("norm", ["place"], 0.8, (NAN, NAN), (), "residual"),
        ("loss", ["spread"], 0.5, (0.9, 0.5), (remain(0.1),), "residual"),  # and some is shown to remain
        ("loss", ["spread"], 0.5, (0.9, 0.5), (CLEAN,), "displaced"),
        ("loss", ["spread"], 0.5, (0.9, 0.001), (CLEAN,), "residual"),
        ("loss", ["spread"], 0.5, (NAN, NAN), (CLEAN,), "residual"),
        ("m2", ["spread"], 0.5, (0.5, 0.5), (), "displaced"),
    ],
)
def test_what_a_difference_means(name, parts, effect, original, shares, expected):
    metric = find(name, *shares, effect=effect, original=original)
    assert judge_side(metric, CONTRASTS[name], parts, 0.05) == expected


# what it says, and what its layers hold

ERASED, MAYBE = Judged("erased", "within"), Judged("inconclusive", "not within")
KNOWS, MARKED = Judged("residual", "differs", ("place",)), Judged("displaced", "differs", ("place",))
CANNOT = Judged("inconclusive", "cannot show")


def judge_layers(judged, oracle=1, family="layers", blind=()):
    metrics = {name: find(name, BLIND if name in blind else CLEAN) for name in judged}
    return judge_family(family, judged, replace(REPORT, metrics=metrics, given=Given(oracle=oracle)))


@pytest.mark.parametrize(
    ("judged", "blind", "expected"),
    [
        ({"readout": KNOWS, "norm": MARKED, "loss": KNOWS}, (), Judged("residual", "residual", ("readout",))),
        ({"readout": ERASED, "norm": MARKED}, (), Judged("displaced", "displaced", ("norm",))),
        ({"m2": CANNOT, "readout": CANNOT}, ("m2", "readout"), Judged("inconclusive", "not judged", ("m2", "readout"))),
        ({}, (), Judged("inconclusive", "not judged", ())),
        ({"readout": MAYBE, "tangent": ERASED}, (), Judged("inconclusive", "not within", ("readout",))),
        ({"readout": ERASED, "m2": CANNOT}, ("m2",), Judged("erased", "within", ("readout",))),
        ({"readout": ERASED, "relearned": ERASED}, (), Judged("erased", "within", ("readout", "relearned"))),
    ],
)
def test_a_family(judged, blind, expected):
    assert judge_layers(judged, blind=blind) == expected


def test_contrasts_of_the_other_family_have_no_part():
    judged = {"loss": ERASED, "readout": KNOWS}
    assert judge_layers(judged, family="outputs") == Judged("erased", "within", ("loss",))
    assert judge_layers(judged).verdict == "residual"


def test_layers_without_an_oracle_are_cleared_by_relearning_only():
    judged = {"readout": ERASED, "m4": CANNOT}
    assert judge_layers(judged, oracle=0, blind=("m4",)) == Judged("inconclusive", "not judged", ("readout", "m4"))
    assert judge_layers({**judged, "relearned": ERASED}, oracle=0).by == ("relearned",)
    assert judge_layers({"readout": KNOWS}, oracle=0).verdict == "residual"
    assert judge_layers({"loss": ERASED}, oracle=0, family="outputs").verdict == "erased"


# the whole


def judge_whole(outputs="erased", layers="erased", scope="layers", **facts):
    report = replace(REPORT, settings=replace(AuditSettings(), scope=scope))
    found = judge_report(report, Judged(outputs, ""), Judged(layers, ""), FACTS | facts)
    return found.verdict, found.cause, found.by


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("erased", "erased", ("outputs", "layers"))),
        ({"outputs": "residual"}, ("residual", "residual", ("outputs",))),
        ({"outputs": "displaced", "layers": "residual"}, ("residual", "residual", ("layers",))),
        ({"layers": "displaced"}, ("displaced", "displaced", ("layers",))),
        ({"outputs": "displaced", "layers": "displaced"}, ("displaced", "displaced", ("outputs", "layers"))),
        ({"layers": "inconclusive"}, ("inconclusive", "pending", ("layers",))),
        ({"outputs": "inconclusive", "layers": "inconclusive"}, ("inconclusive", "pending", ("outputs", "layers"))),
        ({"layers": "inconclusive", "scope": "outputs"}, ("erased", "erased", ("outputs",))),
        ({"outputs": "inconclusive", "scope": "outputs"}, ("inconclusive", "pending", ("outputs",))),
        ({"layers": "residual", "scope": "outputs"}, ("residual", "residual", ("layers",))),  # it is not hushed up
        ({"untouched": True}, ("inconclusive", "untouched", ())),
        ({"flagged": True}, ("inconclusive", "flagged", ())),
    ],
)
def test_a_report(given, expected):
    assert judge_whole(**given) == expected


def test_the_gravest_fact_goes_first():
    order = ["invalid", "damaged", "no control", "blocked", "residual", "displaced", "untouched", "flagged", "pending"]
    causes = {"invalid": "guard", "damaged": "damage"}
    for place, name in enumerate(order):
        facts = {one: True for one in order[place:] if one in FACTS}
        outputs = (
            "residual" if "residual" in order[place:] else "displaced" if "displaced" in order[place:] else "erased"
        )
        layers = "displaced" if "displaced" in order[place:] else "inconclusive"
        assert judge_whole(outputs, layers, **facts)[1] == causes.get(name, name)


# its form


def test_the_rule_fits_on_a_page_and_holds_no_sentences():
    beside = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = list(tokenize.generate_tokens(io.StringIO(inspect.getsource(rule)).readline))
    code = [one for one in tokens if one.type not in beside and not one.string.startswith('"""')]
    lines = {one.start[0] for one in code if not one.line.startswith(("from ", "import "))}
    assert len(lines) <= 90
    assert max(len(one.string.split()) for one in code if one.type == tokenize.STRING) <= 2


def test_a_score_that_knows_the_original_says_nothing_below_zero():
    low = remain(-0.3)
    assert judge_contrast(find("tangent", low), CONTRASTS["tangent"], REPORT).verdict == "erased"
    assert judge_contrast(find("readout", low), CONTRASTS["readout"], REPORT).verdict == "inconclusive"
    assert judge_contrast(find("tangent", MUCH), CONTRASTS["tangent"], REPORT).verdict == "inconclusive"
