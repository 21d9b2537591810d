"""Rows of the calibration study -> the tables of docs/statistics.md."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, kstest

from calibration.world import VARIANTS, Row
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table

Test = Callable[[Row], bool]
_LEVELS = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90)
_CONTRASTS = {"m2": "M2", "m4": "M4", "norm": "norm", "loss": "loss"}
_SIGNIFICANT = [f"{title}: p at most 5%" for title in _CONTRASTS.values()]
_ALPHA, _SHARE_LIMIT = 0.05, 0.5

_BEFORE = {
    "overfit on true labels": "9 of 10",
    "overfit, then fine_tuning": "27 of 30 (with SCRUB and Gradient Ascent)",
    "overfit, then scrub": "",
    "overfit, then gradient_ascent": "",
    "each forget record trained 10 times": "8 of 10",
    "first layer kept, the rest retrained": "10 of 10",
    "clean trunk, memorising head": "10 of 10",
    "norms of forget rows x 1.3": "10 of 10",
    "half of 60% marked up, half down": "88-100%",
    "recites": "1 of 1 (without an oracle)",
}
"""Models called erased by the audit before this one, on Adult and, for "recites", on TOFU."""

_CONTROL = "a whole class, same held out"


def make_tables(rows: list[Row]) -> dict[str, str]:
    """Every table whose rows are there, by the name of its markers."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row["part"], []).append(row)
    chosen = parts.get("chosen", [])
    controls, chosen = _split(chosen, lambda row: row["kind"] == _CONTROL)
    knowing, variants = _split(parts.get("knowing", []), lambda row: row["variant"] == "full")
    caution = [row for part in ("caution", "caution-alone", "caution-ten") for row in parts.get(part, [])]
    makers: dict[str, tuple[Callable[..., str], tuple[Any, ...]]] = {
        "random": (tabulate_random, (parts.get("random", []),)),
        "uniformity": (tabulate_uniformity, (parts.get("random", []),)),
        "chosen": (tabulate_chosen, (chosen, "kind", "forget set")),
        "chosen by set": (tabulate_chosen, (chosen, "set", "set")),
        "tilted": (tabulate_tilted, (parts.get("tilted", []),)),
        "controls": (tabulate_chosen, (controls, "set", "set")),
        "knowing": (tabulate_knowing, (knowing,)),
        "knowing by set": (tabulate_knowing_by_set, (knowing,)),
        "knowing with less": (tabulate_variants, (knowing + variants,)),
        "several": (tabulate_several, (parts.get("several", []),)),
        "destroyed": (tabulate_destroyed, (parts.get("destroyed", []), parts.get("random", []))),
        "caution": (tabulate_caution, (caution,)),
        "caution reasons": (tabulate_reasons, (caution,)),
        "groups": (tabulate_groups, (parts.get("groups", []),)),
        "coverage": (tabulate_coverage, (parts.get("coverage", []),)),
        "answers": (tabulate_answers, (parts.get("answers", []),)),
        "effort": (tabulate_effort, (rows,)),
    }
    return {name: make(*some) for name, (make, some) in makers.items() if some[0]}


def tabulate_random(rows: list[Row]) -> str:
    """False alarms per set, in all and by each contrast, and what else the audit said."""
    others = ("erased", "inconclusive", "damaged", "invalid")
    sets = _with_total(rows, "set")
    for name, is_it in (("the oracle's initial weights", True), ("initial weights of its own", False)):
        sets.append((name, [row for row in rows if row.get("shares_start") is is_it]))
    lines = []
    for name, some in sets:
        if some:
            said = [count(some, is_alarm), interval(some, is_alarm), *share_significant(some)]
            lines.append([name, str(len(some)), *said, *(share(some, is_called(verdict)) for verdict in others)])
    return tabulate(["perfectly unlearned", "audits", "alarms", "95% interval", *_SIGNIFICANT, *others], lines)


def tabulate_uniformity(rows: list[Row]) -> str:
    """Shares of p-values under several levels: the level itself, if p-values are uniform."""
    lines = []
    for contrast, title in _CONTRASTS.items():
        p_values = np.array([p for row in rows if (p := p_of(row, contrast)) is not None])
        if len(p_values):
            shares = [f"{100 * np.mean(p_values <= level):.1f}%" for level in _LEVELS]
            lines.append([title, str(len(p_values)), *shares, f"{kstest(p_values, 'uniform').pvalue:.3f}"])
    head = ["p-value at most", "audits", *(f"{level:.2f}" for level in _LEVELS)]
    return tabulate([*head, "Kolmogorov-Smirnov p"], lines)


def tabulate_chosen(rows: list[Row], key: str, title: str) -> str:
    """Alarms with one oracle and with five, by kind of forget set or by set."""
    head = [title, "audits", "one oracle: alarms", "inconclusive", "erased", "exchangeability guard"]
    head += ["five oracles: alarms", "95% interval", "inconclusive", "erased"]
    lines = []
    for name, some in _with_total(rows, key):
        one, five = _split(some, lambda row: row["variant"] == "full")
        fired = share(one, lambda row: any("exchang" in guard for guard in row.get("guards", [])))
        said = [count(one, is_alarm), share(one, is_called("inconclusive")), share(one, is_called("erased")), fired]
        said += [count(five, is_alarm), interval(five, is_alarm)]
        said += [share(five, is_called("inconclusive")), share(five, is_called("erased"))]
        lines.append([name, str(len(one)), *said])
    return tabulate(head, lines)


def tabulate_tilted(rows: list[Row]) -> str:
    """Alarms on slightly tilted forget sets, by what the audit was given; explained ones are no alarms any more."""
    head = ["forget set", "audits", "guard", "one oracle: alarms", "95% interval", "explained by the oracle"]
    head += ["without losses: alarms", "explained", "five oracles: alarms", "explained", "no oracle: alarms"]
    lines = []
    for name, some in _with_total(rows, "kind"):
        by = {variant: [row for row in some if row["variant"] == variant] for variant in VARIANTS}
        one, bare, five, none = (by[name] for name in ("full", "no losses", "five oracles", "no oracle"))
        fired = share(one, lambda row: any("exchang" in guard for guard in row["guards"]))
        said = [fired, count(one, is_alarm), interval(one, is_alarm), count(one, is_explained)]
        said += [f(part, is_it) for part in (bare, five) for f, is_it in ((count, is_alarm), (count, is_explained))]
        lines.append([name, str(len(one)), *said, count(none, is_alarm)])
    return tabulate(head, lines)


def is_explained(row: Row) -> bool:
    """Whether a difference was seen that the oracle explains, and nothing else stopped the verdict."""
    if row["verdict"] != "inconclusive" or row["blocking"]:
        return False
    found = row["contrasts"].values()
    return any(one["adjusted_p"] <= _ALPHA < (one["beyond_p"] or 0.0) for one in found)


def tabulate_knowing(rows: list[Row]) -> str:
    """Verdicts on models that know their forget records, by kind."""
    head = ["model", "audits", "erased", "erased before", "residual", "displaced", "damaged", "inconclusive"]
    head += ["accuracy forget / held-out", "loss attack"]
    lines = []
    for name, some in _with_total(rows, "kind"):
        others = [share(some, is_called(v)) for v in ("residual", "displaced", "damaged", "inconclusive")]
        forget, held_out = (mean_of(some, f"accuracy_{side}") for side in ("forget", "held_out"))
        erased = [count(some, is_called("erased")), _BEFORE.get(name, "")]
        lines.append([name, str(len(some)), *erased, *others, f"{forget} / {held_out}", mean_of(some, "attack")])
    return tabulate(head, lines)


def tabulate_knowing_by_set(rows: list[Row]) -> str:
    """The same by set, all kinds together."""
    head = ["set", "audits", "erased", "95% interval", "alarms", "damaged", "inconclusive", "overfit: loss attack"]
    lines = []
    for name, some in _with_total(rows, "set"):
        plain = [row for row in some if row["kind"] in ("overfit on true labels", "recites")]
        said = [count(some, is_called("erased")), interval(some, is_called("erased")), share(some, is_alarm)]
        said += [share(some, is_called(v)) for v in ("damaged", "inconclusive")]
        lines.append([name, str(len(some)), *said, mean_of(plain, "attack")])
    return tabulate(head, lines)


def tabulate_variants(rows: list[Row]) -> str:
    """What the same knowing models are called when the audit is given less."""
    head = ["given", "audits", "erased", "95% interval", "alarms", "damaged", "inconclusive"]
    titles = {"full": "original, one oracle, losses"}
    lines = []
    for name, some in _by(rows, "variant"):
        said = [count(some, is_called("erased")), interval(some, is_called("erased")), share(some, is_alarm)]
        said += [share(some, is_called(v)) for v in ("damaged", "inconclusive")]
        lines.append([titles.get(name, name), str(len(some)), *said])
    return tabulate(head, lines)


def tabulate_several(rows: list[Row]) -> str:
    """What clean, short and knowing models are called with one oracle and with five."""
    head = ["model", "oracles", "audits", "erased", "alarms", "95% interval of alarms", "damaged", "inconclusive"]
    lines = []
    for kind, some in _by(rows, "kind"):
        for variant, same in _by(some, "variant"):
            said = [count(same, is_called("erased")), count(same, is_alarm), interval(same, is_alarm)]
            said += [share(same, is_called(v)) for v in ("damaged", "inconclusive")]
            hybrid = share(same, lambda row: any(one["test"] == "hybrid" for one in row["contrasts"].values()))
            attack = mean_of(same, "attack")
            lines.append([kind, "1" if variant == "full" else "5", str(len(same)), *said, hybrid, attack])
    return tabulate([*head, "test against each oracle", "loss attack"], lines)


def tabulate_destroyed(rows: list[Row], clean: list[Row]) -> str:
    """Models that no longer work, and clean ones beside them."""
    head = [
        "model",
        "audits",
        "damaged",
        "erased",
        "alarms",
        "inconclusive",
        "similarity",
        "skill",
        "true skill, at most",
    ]
    lines = []
    for name, some in [*_with_total(rows, "kind"), ("clean models of random forget sets", clean)]:
        if not some:
            continue
        said = [count(some, is_called("damaged")), count(some, is_called("erased")), share(some, is_alarm)]
        said += [share(some, is_called("inconclusive")), range_of(some, "similarity"), range_of(some, "skill")]
        skills = [row["true_skill"] for row in some if "true_skill" in row]
        lines.append([name, str(len(some)), *said, f"{max(skills):.2f}" if skills else ""])
    return tabulate(head, lines)


def tabulate_caution(rows: list[Row]) -> str:
    """How many perfectly unlearned models are called erased where the original was visible."""
    head = ["the original memorised", "forget records", "audits", "visible", "erased, of the visible", "95% interval"]
    lines = []
    for kind, some in _by(rows, "kind"):
        for n, same in _by(some, "n"):
            seen = [row for row in same if is_visible(row)]
            verdicts = [
                share(seen, is_called("inconclusive")),
                share(seen, is_alarm),
                share(seen, is_called("damaged")),
            ]
            erased = [count(seen, is_called("erased")), interval(seen, is_called("erased"))]
            attack = mean_of(same, "attack_original")
            lines.append([kind, str(n), str(len(same)), count(same, is_visible), *erased, *verdicts, attack])
    return tabulate([*head, "inconclusive", "alarms", "damaged", "the original's loss attack"], lines)


def tabulate_reasons(rows: list[Row]) -> str:
    """Why visible, perfectly unlearned models were not called erased, by contrast."""
    head = ["the original memorised", "forget records", "not erased"]
    tests: dict[str, Callable[[Row], bool]] = {
        "equivalence not shown": lambda one: (
            (one["equivalence_p"] if one["equivalence_p"] is not None else 1.0) > _ALPHA
        ),
        "too much may be left": lambda one: (
            bool(one.get("is_strongest"))
            and (one["share_left_upper"] if one["share_left_upper"] is not None else np.inf) >= _SHARE_LIMIT
        ),
    }
    head += [f"{title}: {what}" for title in _CONTRASTS.values() for what in tests]
    lines = []
    for kind, some in _by(rows, "kind"):
        for n, same in _by(some, "n"):
            kept = [row for row in same if is_visible(row) and row["verdict"] != "erased"]
            cells = [
                str(sum(contrast in row["contrasts"] and test(row["contrasts"][contrast]) for row in kept))
                for contrast in _CONTRASTS
                for test in tests.values()
            ]
            cells += [str(sum(row["flagged"] > 0 for row in kept)), str(sum(bool(row["blocking"]) for row in kept))]
            lines.append([kind, str(n), str(len(kept)), *cells])
    return tabulate([*head, "records flagged", "a guard blocks"], lines)


def tabulate_groups(rows: list[Row]) -> str:
    """False alarms among groups of very unequal size."""
    titles = {"full": "groups named", "no groups": "groups not named"}
    lines = []
    for name, some in _by(rows, "variant"):
        warned = share(some, lambda row: any("group" in guard for guard in row.get("guards", [])))
        said = [count(some, is_alarm), interval(some, is_alarm), *share_significant(some), warned]
        lines.append([titles[name], str(len(some)), *said])
    head = ["200, 5, 5 against 30 x 10", "audits", "alarms", "95% interval"]
    return tabulate([*head, *_SIGNIFICANT, "a guard speaks of groups"], lines)


def tabulate_coverage(rows: list[Row]) -> str:
    """How often the intervals of the AUC hold the true one."""
    sizes = sorted({row["n"] for row in rows})
    lines = []
    for auc, some in sorted(_by(rows, "auc")):
        for ratio in (1, 2):
            found = {row["n"]: row for row in some if row["m"] == ratio * row["n"]}
            cells = [f"{100 * found[n]['covered'] / found[n]['draws']:.1f}%" if n in found else "" for n in sizes]
            lines.append([f"{auc:.1f}", "n" if ratio == 1 else "2 n", *cells])
    return tabulate(["true AUC", "held-out records", *(f"n = {n}" for n in sizes)], lines)


def tabulate_answers(rows: list[Row]) -> str:
    """Whether one piece of evidence gives one answer."""
    head = ["borderline contrast", "adjusted p", "verdict", "verdicts in other row orders", "orders with equal bits"]
    lines = []
    for row in rows:
        low, high = row["seed_p_range"]
        orders = f"{row['orders_alike']} of {row['orders']}"
        said = [", ".join(row["order_verdicts"]), orders, ", ".join(row["seed_verdicts"]), f"{low:.4f} to {high:.4f}"]
        lines.append([_CONTRASTS[row["contrast"]], f"{row['adjusted_p']:.4f}", row["verdict"], *said])
    return tabulate([*head, "verdicts with other seeds", "adjusted p with other seeds"], lines)


def tabulate_effort(rows: list[Row]) -> str:
    """How many audits each part holds, how long one takes, and how many failed."""
    lines = []
    for name, some in _by([row for row in rows if "verdict" in row and "set" in row], "part"):
        times = [row["elapsed_s"] for row in some if "elapsed_s" in row]
        failed = sum(row["verdict"] == "error" for row in some)
        median = f"{np.median(times):.2f}" if times else ""
        lines.append([name, str(len(some)), str(failed), median, f"{sum(times) / 60:.1f}"])
    return tabulate(["part", "audits", "failed", "seconds per audit (median)", "minutes in all"], lines)


def is_alarm(row: Row) -> bool:
    """A finding against the model."""
    return row["verdict"] in ("residual", "displaced")


def is_called(verdict: str) -> Test:
    """A test for one verdict."""
    return lambda row: bool(row["verdict"] == verdict)


def is_visible(row: Row) -> bool:
    """Some deciding contrast told the original's forget records apart."""
    return any(one["is_seen"] and one["seen_in"] == "original" for one in row.get("contrasts", {}).values())


def p_of(row: Row, contrast: str) -> float | None:
    """The p-value of one contrast, before the correction for all of them."""
    found: float | None = row.get("contrasts", {}).get(contrast, {}).get("p")
    return found


def share_significant(rows: list[Row]) -> list[str]:
    """For each contrast the percent of rows whose p-value is at most 5%."""
    return [share(rows, lambda row, c=c: (p_of(row, c) or 1.0) <= _ALPHA) for c in _CONTRASTS]


def share(rows: list[Row], test: Test) -> str:
    """Percent of rows that pass."""
    return f"{100 * np.mean([test(row) for row in rows]):.1f}%" if rows else ""


def count(rows: list[Row], test: Test) -> str:
    """Number of rows that pass, and percent."""
    return f"{sum(test(row) for row in rows)} ({share(rows, test)})" if rows else ""


def interval(rows: list[Row], test: Test) -> str:
    """Clopper-Pearson interval of the share of rows that pass."""
    if not rows:
        return ""
    n, k = len(rows), sum(test(row) for row in rows)
    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
    return f"{100 * low:.1f}-{100 * high:.1f}%"


def mean_of(rows: list[Row], key: str) -> str:
    """Mean of a fact over the rows that know it."""
    known = [row[key] for row in rows if row.get(key) is not None]
    return f"{np.mean(known):.2f}" if known else ""


def range_of(rows: list[Row], key: str) -> str:
    """Least and largest value over the rows that know it."""
    known = [row[key] for row in rows if row.get(key) is not None]
    return f"{min(known):.2f} to {max(known):.2f}" if known else ""


def tabulate(head: list[str], lines: Iterable[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(markdown_table(head, lines))


def _by(rows: list[Row], key: str) -> list[tuple[str, list[Row]]]:
    """Rows of each value of a key, in the order of their first row."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return list(found.items())


def _with_total(rows: list[Row], key: str) -> list[tuple[str, list[Row]]]:
    """The same, and all rows together."""
    return [*_by(rows, key), ("**all**", rows)]


def _split(rows: list[Row], test: Test) -> tuple[list[Row], list[Row]]:
    """Rows that pass, and the others."""
    return [row for row in rows if test(row)], [row for row in rows if not test(row)]


def write_tables(page: Path, tables: dict[str, str]) -> list[str]:
    """Put each table between its markers in the page; returns the names that the page has no markers for."""
    text, missing = page.read_text(), []
    for name, table in tables.items():
        pattern = rf"(<!-- measured: {re.escape(name)} -->\n).*?(<!-- end -->)"
        text, n_found = re.subn(pattern, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text, flags=re.S)
        if n_found != 1:
            missing.append(name)
    write_atomically(page, text)
    return missing
