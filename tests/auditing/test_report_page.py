import re
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import GuardFinding
from ruler.auditing.report.display import choose_digits, format_interval, format_number, format_p, show_text
from ruler.auditing.report.figures import (
    draw_distributions,
    draw_effects,
    draw_gauge,
    draw_layers,
    draw_ranks,
    draw_roc,
)
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis
from ruler.auditing.report.page import render_page
from ruler.auditing.report.record_tables import show_groups, show_records
from ruler.auditing.settings import AuditSettings

sys.path.insert(0, str(Path(__file__).parent))
from report_factory import NAN, VERDICTS, make_report

TEMPLATES = Path(render_page.__code__.co_filename).parent / "templates"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


class _Outline(HTMLParser):
    """Headings, ids and references of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in found:
            self.ids.append(found["id"])
        for name in ("aria-labelledby", "aria-controls"):
            self.references += found.get(name, "").split()
        if found.get("href", "").startswith("#"):
            self.references.append(found["href"][1:])
        self.inline += [name for name in found if name == "style" or name.startswith("on")]


def outline(page: str) -> _Outline:
    parser = _Outline()
    parser.feed(page)
    return parser


CASES = [
    *({"verdict": verdict} for verdict in VERDICTS),
    {"verdict": "inconclusive", "has_oracle": False, "n_held_out": 0, "has_original": False},
    {"n_groups": 5},
    {"n_layers": 12},
    {"n_layers": 2, "test": "hybrid", "has_original": False},
    {"has_losses": False},
    {"n_forget": 3},
    {"n_forget": 1, "n_retain": 2, "n_held_out": 1},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_structure_is_sound(case):
    page = render_page(make_report(**case))
    found = outline(page)
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(found.headings, found.headings[1:], strict=False))
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.references) <= set(found.ids)
    assert found.tags.count("caption") == found.tags.count("table")
    assert {"header", "nav", "main", "footer"} <= set(found.tags)
    assert not found.inline  # the content policy would block them
    assert not re.search(r"\bnan\b", re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL))


def test_policy_lets_nothing_out():
    page = render_page(make_report())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"https?://|//[a-z]+\.", page)


def test_hostile_text_stays_text():
    guards = [GuardFinding(HOSTILE, "warn", HOSTILE, HOSTILE)]
    report = make_report(ids=[HOSTILE] * 40, guards=guards, n_groups=2)
    report.records["group"] = HOSTILE
    page = render_page(report)
    assert "<img" not in page
    assert page.count("<script") == 3  # ours, and the data of two tables
    assert page.count("</script>") == 3
    assert "alert(1)" in page


def test_hostile_text_stays_text_in_every_part():
    report = make_report("inconclusive", n_layers=3, settings=AuditSettings(margin_chosen_by=HOSTILE))
    m2 = report.metrics["m2"]
    layers = tuple(replace(one, layer=HOSTILE) for one in m2.layers)
    report.metrics["m2"] = replace(m2, reason=HOSTILE, layer=HOSTILE, layers=layers, paper_reading=HOSTILE)
    report = replace(
        report,
        reason=HOSTILE,
        needs=[HOSTILE],
        damage=replace(report.damage, reason=HOSTILE),
        privacy=replace(report.privacy, contrast=HOSTILE),
        outputs={HOSTILE: {HOSTILE: 1.0}},
        provenance={
            "layers": [HOSTILE],
            "pooling": HOSTILE,
            "weights": {HOSTILE: HOSTILE},
            "files": {HOSTILE: HOSTILE},
            "torch": HOSTILE,
            "arrays": {HOSTILE: [{HOSTILE: {"sha256": HOSTILE, "shape": [HOSTILE], "dtype": HOSTILE}}]},
            HOSTILE: [HOSTILE],
        },
    )
    page = render_page(report)
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert page.count("alert(1)") > 20


@pytest.mark.parametrize("provenance", [{}, {"arrays": None}, {"arrays": {"unlearned": {"forget": 3}}, "layers": "x"}])
def test_provenance_from_elsewhere(provenance):
    page = render_page(replace(make_report(), provenance=provenance))
    assert "What was compared" in page


def words_of(page: str) -> str:
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(text).split())


def test_what_would_settle_it_is_listed_in_order():
    report = make_report("inconclusive")
    text = words_of(render_page(report))
    places = [text.index(need) for need in ("What would settle it", *report.needs)]
    assert places == sorted(places)
    assert "What would settle it" not in words_of(render_page(make_report("residual")))
    assert "blocks the verdict" in text


def test_what_was_read_is_said():
    text = words_of(render_page(make_report(n_layers=12)))
    for words in (
        "these layers (12, from transformer.h.0 to transformer.h.11)",
        "pooling: mean over tokens",
        "Weights, SHA-256: Oracle",
        f"{12:064x}",
        "data/forget.csv",
        "torch 2.9.0, transformers 4.57.1",
        "declared by whoever ran the audit, not verified",
        "Chosen by: default of the software.",
    ):
        assert words in text
    assert "whoever sees" not in text


def test_sensitivity_damage_and_privacy_are_told():
    text = words_of(render_page(make_report("damaged")))
    assert "M4 percentile rank original model 0.480 0.710 no" in text
    assert "Blind here: it clears nothing." in text
    assert "Linear CKA 0.41 0.70 Too low." in text
    assert "Epsilon is at least 0.00 with a confidence of 95%, by M2" in text
    assert "known members" in words_of(render_page(make_report(has_original=False)))


def test_every_contrast_has_its_words():
    text = words_of(render_page(make_report()))
    for contrast in CONTRASTS.values():
        for words in (contrast.title.lower(), contrast.question, contrast.reading, contrast.paper_rule):
            assert words in (text if words[:1].isupper() else text.lower())


def test_a_contrast_that_is_not_in_the_table_is_shown():
    report = make_report()
    report.metrics["mine"] = replace(report.metrics["loss"], name="mine", verdict="inconclusive")
    report.distributions.scores["mine"] = report.distributions.scores["loss"]
    assert "scores-mine-title" in render_page(report)


def test_layer_profiles():
    report = make_report(n_layers=12)
    profiles = draw_layers(report)
    assert [profile.title for profile in profiles] == ["M2 calibration gap", "M4 percentile rank", "Norm", "Loss"]
    first = profiles[0]
    assert first.sentence == "Most telling: transformer.h.11, layer 12 of the 12 read (AUC 0.24 [0.15, 0.33])."
    assert [point.is_telling for point in first.points] == [False] * 11 + [True]
    assert first.original
    assert len(first.rows) == 12
    heights = [point.y for point in first.points]
    assert heights == sorted(heights)  # ever further below 0.5
    assert draw_layers(make_report(n_layers=1)) == []
    assert not draw_layers(make_report(n_layers=3, has_original=False))[0].original


def test_layer_profiles_without_a_number_or_a_name():
    report = make_report(n_layers=40)
    m2 = report.metrics["m2"]
    layers = (replace(m2.layers[0], effect=NAN, effect_interval=(NAN, NAN)), *m2.layers[1:])
    report.metrics["m2"] = replace(m2, layer=None, layers=layers)
    profile = draw_layers(report)[0]
    assert len(profile.points) == 39
    assert profile.telling_x is None
    assert len(profile.depths) <= 12
    assert "nan" not in profile.line
    assert "transformer.h.39" in render_page(report)


def test_roc_lies_within_the_drawing_and_stays_small():
    random = np.random.default_rng(0)
    false = np.sort(random.random(5000))
    report = make_report()
    report.distributions.roc["m2"] = (false, false**0.3)
    figure = draw_roc(report)
    assert [curve.label for curve in figure.curves][-1] == "M2"  # the best one on top
    assert sum(len(curve.path) for curve in figure.curves) < 12_000
    for curve in figure.curves:
        places = [tuple(map(float, place.split())) for place in curve.path[1:].split("L")]
        assert all(48 <= x <= 428 and 34 <= y <= 244 for x, y in places)
    assert "M2" in figure.description
    assert draw_roc(make_report("inconclusive", n_held_out=0)) is None


def test_a_page_of_many_layers_and_records_is_small():
    page = render_page(make_report(n_layers=30, n_groups=5))
    assert len(page) < 250_000


def test_hidden_characters_are_shown():
    page = render_page(make_report(ids=["evil\u202egnp.exe", *map(str, range(39))]))
    assert "\u202e" not in page
    assert "evil\\u{202e}gnp.exe" in page


def test_very_long_names_are_cut_only_where_they_would_burst_the_page():
    short = show_records(make_report(ids=["x" * 10_000] * 40))
    assert not short.is_clipped
    assert len(short.first[0][0]) == 10_000
    long = show_records(make_report(n_forget=4000, ids=["x" * 10_000] * 4000))
    assert long.is_clipped
    assert len(long.data) < 20_000_000


def test_records_that_stand_out_come_first():
    table = show_records(make_report(n_forget=100))
    q_values = [row[[column.key for column in table.columns].index("q_value")] for row in table.first]
    assert q_values == sorted(q_values)
    assert len(table.first) == 25


def test_empty_columns_are_left_out_and_unknown_ones_shown():
    report = make_report(has_oracle=False)
    report.records["site"] = "ward <3>"
    keys = [column.key for column in show_records(report).columns]
    assert "oracle_similarity" not in keys
    assert keys[-1] == "site"


def test_columns_of_records_and_groups():
    report = make_report(n_groups=3)
    keys = [column.key for column in show_records(report).columns]
    assert {"norm_ratio", "loss", "loss_gap"} <= set(keys)
    assert "loss_gap" in [column.key for column in show_groups(report).columns]
    assert all(column.meaning for column in show_records(report).columns)


def test_values_that_are_not_finite_are_dashes():
    report = make_report()
    report.records["shift"] = np.inf
    report.records.loc[0, "oracle_gap"] = NAN
    assert "Infinity" not in show_records(report).data


def test_colours_have_contrast():
    """WCAG AA: text and its ground differ by 4.5 to 1, in light, dark and print."""
    style = (TEMPLATES / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6})\b", block))
        for name in ("ink", "soft", "erased", "residual", "displaced", "damaged", "inconclusive", "invalid"):
            for ground in ("paper", "wash"):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_histogram_holds_every_record_within_the_drawing():
    random = np.random.default_rng(0)
    values = {"forget": random.random(500), "retain": random.random(900), "held_out": random.random(30)}
    figure = draw_distributions("oracle", "title", values)
    assert [row.side for row in figure.rows] == ["forget", "held_out", "retain"]
    assert len(figure.rows[1].dots) == 30
    for row in figure.rows:
        for bar in row.bars:
            assert bar.x >= EDGE
            assert bar.x + bar.width <= WIDTH - EDGE + 0.1
            assert 0 <= bar.y <= row.base_y
    assert len(figure.ticks) >= 2


@pytest.mark.parametrize("values", [[1.0], [1.0] * 50, [0.0] * 3, [NAN, 0.5], [-1.0, 1.0], [1 - 1e-12, 1.0]])
def test_degenerate_values_are_drawn(values):
    figure = draw_distributions("oracle", "title", {"forget": np.array(values)})
    assert np.isfinite([row.median_x for row in figure.rows]).all()


def test_nothing_to_draw():
    assert draw_distributions("oracle", "title", {}) is None
    assert draw_distributions("oracle", "title", {"forget": np.array([NAN])}) is None
    report = make_report(has_oracle=False)
    report.metrics.clear()
    assert draw_effects(report) is None
    assert draw_gauge(report) is None
    report.distributions.rank_counts.clear()
    assert draw_ranks(report.distributions) is None
    assert "<h1" in render_page(report)


def test_gauge_reads_both_directions():
    assert draw_gauge(make_report("residual")).n_right == 76
    assert draw_gauge(make_report("displaced")).n_right == 78
    assert draw_gauge(make_report("invalid")) is None
    assert draw_gauge(make_report("damaged")) is None


def test_ranks_below_and_above():
    figure = draw_ranks(make_report().distributions)
    assert figure.has_held_out
    assert len(figure.bars) <= 20
    assert not draw_ranks(make_report(n_held_out=0).distributions).has_held_out


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.99, 1.0), (-1, 1), (0.999999, 1.0), (0.1999, 0.2003)])
def test_ticks_are_round_and_apart(low, high):
    ticks = Axis(low, high).find_ticks()
    labels = [tick.label for tick in ticks]
    assert 2 <= len(labels) <= 6
    assert len(set(labels)) == len(labels)


def test_display():
    assert show_text("caf\u00e9 \U0001f469\u200d\U0001f52c") == "caf\u00e9 \U0001f469\u200d\U0001f52c"
    assert show_text("a\u200bb\u202e\ud800\x07") == "a\\u{200b}b\\u{202e}\\u{d800}\\u{7}"
    assert show_text("two\nlines") == "two\nlines"
    assert format_number(-0.00001) == "0.0000"
    assert format_number(0.5, 2, is_signed=True) == "+0.50"
    assert format_number(None) == format_p(None) == format_number(NAN) == "\u2013"
    assert format_interval((NAN, 1.0)) == format_interval(None) == ""
    assert choose_digits(pd.Series([1.0, 1.0])) == 4
    assert choose_digits([NAN]) == 4
