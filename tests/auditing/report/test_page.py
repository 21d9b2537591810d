import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.auditing.report.factory import VERDICTS, attack, make_report

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import GuardFinding, PaperReading
from ruler.auditing.report.page import render_page
from ruler.auditing.report.words import format_span
from ruler.auditing.settings import AuditSettings

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
    {"n_layers": 2, "has_original": False},
    {"has_oracle": False, "n_references": 1, "verdict": "residual", "n_groups": 30},
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
    report.records["group"] = report.groups["group"] = HOSTILE
    page = render_page(report)
    assert "<img" not in page
    assert page.count("<script") == 3  # ours, and the data of two tables
    assert page.count("</script>") == 3
    assert "alert(1)" in page


def test_hostile_text_stays_text_in_every_part():
    report = make_report("inconclusive", n_layers=3, settings=AuditSettings(limit_chosen_by=HOSTILE))
    m2 = report.metrics["m2"]
    layers = tuple(replace(one, layer=HOSTILE) for one in m2.layers)
    report.metrics["m2"] = replace(m2, reason=HOSTILE, layer=HOSTILE, layers=layers, paper=PaperReading(0.0, HOSTILE))
    report = replace(
        report,
        reason=HOSTILE,
        needs=[HOSTILE],
        damage=replace(report.damage, reason=HOSTILE),
        privacy=replace(report.privacy, contrast=HOSTILE),
        answers={HOSTILE: {HOSTILE: 1.0}},
        outputs=replace(report.outputs, reason=HOSTILE),
        declared={"oracle_made": HOSTILE},
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


def test_the_first_screen_says_which_model_was_read_where():
    report = replace(make_report(), declared={"model": "llama-3-8b-unlearned"})
    for known, shown in (
        (
            {"weights": {"unlearned": "5ea1" * 16}},
            "Model llama-3-8b-unlearned Weights, SHA-256 5ea15ea15ea1 Read at layer fc2 Audited 2026-01-15 10:00 UTC",
        ),
        ({"weights": {}}, "Forget embeddings, SHA-256 000000000000 Read at layer fc2"),
    ):
        text = words_of(render_page(replace(report, provenance={**report.provenance, **known})))
        assert shown in text[: text.index("What this means")]
    named = replace(report, declared={}, provenance={"models": {"unlearned": "torch.nn.Linear"}})
    assert "Model Linear Read at one unnamed layer" in words_of(render_page(named))
    placed = replace(report, declared={}, provenance={"files": {"unlearned": "runs/7"}})
    assert "Model runs/7 Read at" in words_of(render_page(placed))


def test_what_was_read_is_said():
    text = words_of(render_page(make_report(n_layers=12)))
    for words in (
        "12 layers (transformer.h.0 to transformer.h.11)",
        "pooling: mean over tokens",
        "Weights, SHA-256: Oracle",
        f"{12:064x}",
        "data/forget.csv",
        "torch 2.9.0, transformers 4.57.1",
        "Nobody declared where it came from.",
        "Chosen by: default of the software.",
    ):
        assert words in text
    assert "whoever sees" not in text


def test_the_first_screen_opens_with_the_scale():
    page = render_page(make_report("residual"))
    opening = page[page.index("<h1") : page.index("What this means")]
    assert 'id="scale-title">What remains of the forget records<' in opening
    assert "A scale from 0%, like records that were never trained on, to 100%" in opening
    assert "The limit 20% is shaded on both sides of 0%." in opening
    assert "What the model says: 35% [26%, 44%], residual. At least 27% remains." in opening
    assert "What its layers hold: 84% [75%, 93%], residual." in opening
    assert 'id="strip-title"' in opening
    assert "never seen: oracle" in opening


def test_a_request_has_one_row_per_person_on_the_first_screen():
    report = make_report("residual", n_groups=7)
    page = render_page(report)
    top = words_of(page[: page.index('id="compared"')])
    for row in report.groups.to_dict(orient="records"):
        amount = format_span(row["remaining"], row["low"], row["high"]).replace("-", "\u2212")
        assert f"{row['group']} {row['n_records']} {amount} {row['verdict']}" in top
    assert "Another round of unlearning" in top
    many = words_of(render_page(make_report("residual", n_groups=30)))
    assert "The 20 gravest of 30 groups." in many
    assert "persons-caption" not in render_page(make_report("residual"))


def test_what_carries_the_verdict_is_in_a_table():
    text = words_of(render_page(make_report("residual")))
    assert (
        "Readout at fc2 layers 83% [74%, 92%] 84% [75%, 93%] 0.760 [0.670, 0.850] 0.0020 0.710 0.900 0.810 p 0.0004"
        in text
    )
    assert "M2 calibration gap at fc2 layers \u2013 \u2013 0.240" in text


def test_attacks_are_shown_with_what_remains():
    page = render_page(attack(make_report("erased")))
    text = words_of(page[page.index('id="attacks"') :])
    assert "quantize: residual After weights were rounded." in text
    assert "Loss 34% [25%, 43%] 35% [26%, 44%] 0.760 [0.670, 0.850] 0.0005 residual" in text


def test_damage_and_privacy_are_told():
    text = words_of(render_page(make_report("damaged")))
    assert "Linear CKA 0.41 0.70 Too low." in text
    assert "Epsilon is at least 0.00 with a confidence of 95%, by M2" in text


def test_every_contrast_has_its_words():
    report = make_report()
    text = words_of(render_page(report))
    for contrast in (CONTRASTS[name] for name in report.metrics):
        for words in (contrast.title.lower(), contrast.question, contrast.reading, contrast.paper_rule):
            assert words in (text if words[:1].isupper() else text.lower())


def test_a_contrast_that_is_not_in_the_table_is_shown():
    report = make_report(n_layers=3)
    report.metrics["mine"] = replace(report.metrics["readout"], name="mine", verdict="inconclusive")
    report.distributions.scores["mine"] = report.distributions.scores["loss"]
    report.distributions.roc["mine"] = report.distributions.roc["loss"]
    page = render_page(report)
    assert "scores-mine-title" in page
    assert "layers-mine-title" in page
    text = words_of(page)
    assert "norm and mine at layers" in text
    assert "mine guessing" in text or "mine M2 guessing" in text  # the key of the ROC


def test_a_page_of_many_layers_and_records_is_small():
    page = render_page(make_report(n_layers=30, n_groups=5))
    assert len(page) < 250_000


def test_hidden_characters_are_shown():
    page = render_page(make_report(ids=["evil\u202egnp.exe", *map(str, range(39))]))
    assert "\u202e" not in page
    assert "evil\\u{202e}gnp.exe" in page


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
