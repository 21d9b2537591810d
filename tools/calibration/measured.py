"""Rows of the calibration study -> the tables of docs/statistics.md."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, kstest

from calibration.world import Row
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table

Rows = list[Row]
Test = Callable[[Row], bool]
_LEVELS = (0.01, 0.05, 0.1, 0.5, 0.9)
_CONTRASTS = {"loss": "loss", "readout": "readout", "m2": "M2", "m4": "M4", "norm": "norm"}
_ALPHA = 0.05
_FOUND = ("residual", "displaced", "damaged")
_CONTROL = "a whole class, same held out"
_LABELS = ("planted labels", "true labels")
_GIVEN = {
    "full": "original, one oracle",
    "two oracles": "original, two oracles",
    "no original": "one oracle, no original",
    "no losses": "original, one oracle, no losses",
    "no oracle": "original, no oracle",
    "reference": "original, reference",
    "reference only": "reference only",
}
_BEFORE = {
    "planted labels, 50": "0% of 60",
    "planted labels, 200": "88% of 60",
    "true labels, 50": "0% of 30 (10 n held out)",
    "true labels, 200": "75% of 80 (2 n held out), 94% of 80 (10 n)",
    "chosen by a rule, several oracles": "0% of 480 (no original)",
    "chosen by a rule, the same held out": "0% of 40 (no original)",
    "knowing, 200": "93% of 432",
}
"""Audits that ended decided and right in the release before, whose limit was one half; worlds differ from today's."""


def make_tables(rows: Rows) -> dict[str, str]:
    """Every table whose rows are there, by the name of its markers; audits that failed are left out."""
    parts = dict(by([withhold(row) for row in rows if "error" not in row], "part"))
    makers: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
        "today": (tabulate_today, ("clean", "knowing", "same-rule")),
        "random": (tabulate_random, ("random",)),
        "uniformity": (tabulate_uniformity, ("random",)),
        "clean": (tabulate_clean, ("clean",)),
        "knowing": (tabulate_kinds, ("knowing",)),
        "tricks": (tabulate_tricks, ("tricks",)),
        "less evidence": (tabulate_variants, ("knowing", "tricks")),
        "dose": (tabulate_dose, ("dose",)),
        "dose and other numbers": (tabulate_peers, ("dose",)),
        "same-rule": (tabulate_same_rule, ("same-rule",)),
        "chosen": (tabulate_chosen, ("chosen", "tilted")),
        "tofu": (tabulate_tofu, ("authors",)),
        "groups": (tabulate_groups, ("groups",)),
        "coverage": (tabulate_coverage, ("coverage",)),
        "answers": (tabulate_answers, ("answers",)),
        "destroyed": (tabulate_destroyed, ("destroyed",)),
    }
    return {
        name: make(*(parts[part] for part in needed))
        for name, (make, needed) in makers.items()
        if all(part in parts for part in needed)
    }


def withhold(row: Row) -> Row:
    """A row by the rule that came after the runs: several oracles do not clear if held-out records are unlike."""
    is_fair = "not_exchangeable" not in row.get("guards", ()) or row.get("control") == "same-rule"
    if is_fair or row.get("variant") != "two oracles":
        return row
    changed = {name: "inconclusive" for name in ("verdict", "half", "says") if row.get(name) == "erased"}
    return {**row, **changed}


def tabulate_today(clean: Rows, knowing: Rows, by_rule: Rows) -> str:
    """Share of audits that end decided and right: the release before, today, and today at a limit of one half."""
    full = keep(keep_visible(clean), variant="full")
    groups = {f"{kind}, {n}": keep(full, kind=kind, n=n) for kind in _LABELS for n in (20, 50, 200)}
    groups["chosen by a rule, several oracles"] = keep(by_rule, variant="two oracles", control="random")
    groups["chosen by a rule, the same held out"] = keep(by_rule, variant="full", control="same-rule")
    groups |= {f"knowing, {n}": keep(sized(knowing), variant="full", size=n) for n in (50, 200)}
    lines = []
    for name, some in groups.items():
        right = _FOUND if name.startswith("knowing") else ("erased",)
        cells = [f"{percent(some, any_of(right, key))} of {len(some)}" for key in ("verdict", "half")]
        lines.append([name, _BEFORE.get(name, ""), *cells])
    return tabulate("models, before, today, today at a limit of one half", lines)


def tabulate_random(rows: Rows) -> str:
    """False alarms per set and in all."""
    starts = {True: "the oracle's initial weights", False: "initial weights of its own"}
    sets = [*with_total(rows, "set"), *((starts[own], some) for own, some in by(rows, "shares_start"))]
    lines = [[name, str(len(some)), count(some, is_alarm), interval(some, is_alarm)] for name, some in sets]
    return tabulate("perfectly unlearned, audits, alarms, 95% interval", lines)


def tabulate_uniformity(rows: Rows) -> str:
    """Shares of p-values under several levels, and of corrected ones under 5% for each part of a contrast."""
    lines = []
    for contrast, title in _CONTRASTS.items():
        found = [row["contrasts"][contrast] for row in rows if contrast in row["contrasts"]]
        p_values = np.array([one["p"] for one in found if one["p"] is not None])
        shares = [f"{100 * np.mean(p_values <= level):.1f}%" for level in _LEVELS]
        by_part = [[one["parts"].get(name, 1.0) for one in found] for name in ("place", "spread", "tail")]
        corrected = ["" if None in some else f"{100 * np.mean(np.array(some) <= _ALPHA):.1f}%" for some in by_part]
        lines.append([title, *shares, f"{kstest(p_values, 'uniform').pvalue:.2f}", *corrected])
    levels = ", ".join(f"{level:g}" for level in _LEVELS)
    return tabulate(f"p-value at most, {levels}, uniform, place, spread, tail", lines)


def tabulate_clean(rows: Rows) -> str:
    """How many perfectly unlearned models are called erased where the original shows the records, by what was given."""
    seen, lines = keep_visible(rows), []
    for kind in _LABELS:
        for n in (20, 50, 200):
            some = {variant: keep(seen, kind=kind, n=n, variant=variant) for variant in _GIVEN}
            full = some["full"]
            cells = [percent(full, called("erased")), interval(full, called("erased")), str(sum(map(is_alarm, full)))]
            cells += [percent(some[name], called("erased")) for name in ("two oracles", "no original")]
            cells += [percent(some[name], is_clear) for name in ("no oracle", "reference", "reference only")]
            cells += [percent(some[name], called("erased", "half")) for name in ("full", "two oracles", "no original")]
            lines.append([kind.split()[0], str(n), str(len(full)), *cells])
    head = "labels, records, visible, one oracle, 95% interval, alarms, two oracles, no original, says: no oracle"
    head += ", says: reference, says: reference only, half: one oracle, half: two, half: no original"
    return tabulate(head, lines)


def tabulate_kinds(rows: Rows) -> str:
    """Verdicts on models that know their forget records, by kind, with all evidence; the methods count together."""
    rows = [row | {"kind": re.sub(r"then \w+", "then unlearned", row["kind"])} for row in keep(rows, variant="full")]
    lines = []
    for name, some in with_total(sized(rows), "kind"):
        verdicts = [str(sum(map(called(word), some))) for word in ("erased", *_FOUND, "inconclusive")]
        found = part(keep(some, size=50), any_of(_FOUND))
        lines.append([name, str(len(some)), *verdicts, found, f"{np.mean([row['attack'] for row in some]):.2f}"])
    head = "model, audits, erased, residual, displaced, damaged, inconclusive, found at 50 records, loss attack"
    return tabulate(head, lines)


def tabulate_tricks(rows: Rows) -> str:
    """What tricks and models that know a part of the records are called; true and wrong labels together."""
    lines = []
    for name, some in with_total([row | {"kind": row["kind"].rsplit(", ", 1)[0]} for row in rows], "kind"):
        given = [row for row in some if row["variant"] in ("full", "reference")]
        counts = [sum(map(test, some)) for test in (called("erased"), is_clear, called("erased", "half"))]
        lines.append([name, part(given, any_of(_FOUND)), *map(str, counts)])
    return tabulate("model, found, erased whatever was given, scope outputs, limit of one half", lines)


def tabulate_variants(knowing: Rows, tricks: Rows) -> str:
    """What the same models are called if the audit is given less."""
    lines, tests = [], (called("erased"), any_of(_FOUND))
    for variant, title in _GIVEN.items():
        some = [keep(rows, variant=variant) for rows in (knowing, tricks)]
        cells = [f(rows, is_it) for rows in some for f, is_it in zip((part, percent), tests, strict=True)]
        lines += [[title, *cells]] * any(map(len, some))
    return tabulate("given, knowing: erased, found, tricks: erased, found", lines)


def tabulate_dose(rows: Rows) -> str:
    """What remains, fitted on the part of the forget records that was trained on, by set and kind of memory."""
    scales = (("loss", "original"), ("readout", "original"), ("loss", "members"))
    kinds = [kind for kind, _ in by(rows, "kind")]
    lines = [
        [name, *(fit(keep(some, kind=kind), *scale) for scale in scales for kind in kinds)]
        for name, some in with_total(rows, "set")
    ]
    titles = {"original": "", "members": " (members' scale)"}
    heads = [f"{contrast}{titles[scale]}: {kind.replace(', ', ' ')}" for contrast, scale in scales for kind in kinds]
    return tabulate(", ".join(["set", *heads]), lines)


def fit(rows: Rows, contrast: str, scale: str) -> str:
    """Slope, intercept and scatter of what remains on the dose."""
    points = [(row["dose"], value) for row in rows if (value := remaining_of(row, contrast, scale)) is not None]
    if len(points) < 6:
        return ""
    x, y = np.array(points).T
    slope, intercept = np.polyfit(x, y, 1)
    scatter = np.sqrt(np.sum((y - intercept - slope * x) ** 2) / (len(x) - 2))
    return f"{slope:.2f} {intercept:+.2f} {scatter:.2f}"


def tabulate_peers(rows: Rows) -> str:
    """How far numbers follow the dose: correlation within each set and kind of memory, mean and weakest."""
    numbers: dict[str, Callable[[Row], float | None]] = {
        "remaining by loss": lambda row: remaining_of(row, "loss", "original"),
        "remaining by readout": lambda row: remaining_of(row, "readout", "original"),
        "loss attack (AUC)": lambda row: row["attack"],
        **{name.upper(): lambda row, name=name: row["metrics"].get(name) for name in ("m1", "m2", "m4")},
    }

    def correlate(some: Rows, read: Callable[[Row], float | None]) -> float:
        return float(np.corrcoef([(row["dose"], read(row)) for row in some], rowvar=False)[0, 1])

    lines = []
    for title, read in numbers.items():
        found = [[correlate(some, read) for _, some in by(same, "set")] for _, same in by(rows, "kind")]
        lines.append([title, *(f"{np.mean(some):.2f} ({min(some, key=abs):.2f})" for some in found)])
    kinds = ", ".join(kind.replace(", ", " ") for kind, _ in by(rows, "kind"))
    return tabulate(f"correlation with the dose, {kinds}", lines)


def tabulate_same_rule(rows: Rows) -> str:
    """Clean models of forget sets that a rule chose: by how held-out records were chosen and what was given."""
    titles = {"random": "at large", "same-rule": "by the same rule"}
    lines = []
    for labels in _LABELS:
        for control, title in titles.items():
            for variant, oracles in (("full", "1"), ("two oracles", "2")):
                some = keep(rows, labels=labels, control=control, variant=variant)
                cells = [percent(some, called("erased")), interval(some, called("erased"))]
                cells += [count(some, is_alarm), percent(some, called("erased", "half"))]
                lines.append([labels.split()[0], title, oracles, str(len(some)), *cells])
    head = "labels, held out, oracles, audits, erased, 95% interval, alarms, erased at one half"
    return tabulate(head, lines)


def tabulate_chosen(chosen: Rows, tilted: Rows) -> str:
    """Alarms on clean models of chosen and tilted forget sets, without an original, by what else was given."""
    lines = []
    control, chosen = keep(chosen, kind=_CONTROL), [row for row in chosen if row["kind"] != _CONTROL]
    tilted = [row | {"kind": row["kind"].split(",")[0]} for row in tilted]
    for name, some in [*with_total(chosen, "kind"), (_CONTROL, control), *with_total(tilted, "kind")]:
        given = [keep(some, variant=variant) for variant in ("full", "two oracles", "no losses", "no oracle")]
        fired = percent(given[0], lambda row: "not_exchangeable" in row["guards"])
        lines.append([name, fired, *(part(rows, is_alarm) for rows in given)])
    return tabulate("forget set, guard, one oracle: alarms, two oracles, no losses, no oracle", lines)


def tabulate_destroyed(rows: Rows) -> str:
    """Models that no longer work."""
    lines = []
    for name, some in with_total(rows, "kind"):
        counts = [str(sum(map(called(word), some))) for word in ("damaged", "erased")]
        lines.append([name, str(len(some)), *counts, f"{max(row['true_skill'] for row in some):.2f}"])
    return tabulate("model, audits, damaged, erased, true skill at most", lines)


def tabulate_groups(rows: Rows) -> str:
    """False alarms among groups of very unequal size."""
    titles = {"full": "groups named", "no groups": "groups not named"}
    lines = [
        [titles[name], str(len(some)), count(some, is_alarm), interval(some, is_alarm)]
        for name, some in by(rows, "variant")
    ]
    return tabulate("groups of 200; 5; 5 against 30 of 10, audits, alarms, 95% interval", lines)


def tabulate_coverage(rows: Rows) -> str:
    """How often intervals hold the truth: mean over shapes and numbers of held-out records, and least."""
    lines = []
    for n, some in sorted(by(rows, "n")):
        cells = []
        for _, same in sorted(by(some, "share")):
            rates = [row["held"] / row["draws"] for row in same]
            cells.append(f"{100 * np.mean(rates):.1f}% ({100 * min(rates):.0f}%)")
        one_sided = [1 - row[key] / row["draws"] for row in some for key in ("under", "over")]
        lines.append(
            [str(n), str(len(some) // 3), *cells, f"{100 * np.mean(one_sided):.1f}% ({100 * min(one_sided):.0f}%)"]
        )
    return tabulate("n, worlds, 0 remains, 0.3 remains, 1 remains, one-sided limits", lines)


def tabulate_answers(rows: Rows) -> str:
    """Whether one piece of evidence gives one answer."""
    alike = sum(row["order_verdicts"] == row["seed_verdicts"] == [row["verdict"]] for row in rows)
    orders = [sum(row[key] for row in rows) for key in ("orders_alike", "orders")]
    widest = max(row["seed_p_range"][1] - row["seed_p_range"][0] for row in rows)
    line = [str(len(rows)), str(alike), f"{orders[0]}/{orders[1]}", f"{widest:.4f}"]
    head = "pieces of evidence, one verdict in all orders and seeds, row orders with equal bits"
    return tabulate(f"{head}, widest range of p over seeds", [line])


def tabulate_tofu(rows: Rows) -> str:
    """Clean language models by 20, 10 and 5 authors and one by one: whole audits, and the persons in them."""
    rows = [row | {"kind": row["kind"].replace("clean 2", "clean")} for row in rows]

    def count_persons(some: Rows, key: str) -> str:
        return f"{sum(row[key].get('erased', 0) for row in some)}/{sum(sum(row[key].values()) for row in some)}"

    lines = []
    for kind, same in by(rows, "kind"):
        for n, own in sorted(by(same, "n"), reverse=True):
            full, base = keep(own, variant="full"), keep(own, variant="reference only")
            cells = [part(full, called("erased")), str(sum(map(is_alarm, full)))]
            cells += [part(keep(own, variant=name), called("erased")) for name in ("two oracles", "relearned")]
            cells += [part(base, is_clear), count_persons(full, "groups")]
            lines.append([kind, str(n), *cells, *(count_persons(base, key) for key in ("groups", "groups_half"))])
    head = "model, authors, one oracle: erased, accused, two oracles: erased, relearned: erased, base only: says erased"
    return tabulate(f"{head}, persons erased: one oracle, base only, base only at one half", lines)


def keep(rows: Rows, **facts: Any) -> Rows:
    """Rows with these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in facts.items())]


def sized(rows: Rows) -> Rows:
    """Rows with the number of forget records that their job was to draw."""
    return [row | {"size": int((re.findall(r"\b(?:50|200)\b", row["job"]) or [200])[0])} for row in rows]


def keep_visible(rows: Rows) -> Rows:
    """All variants of the worlds in which some contrast tells the original's forget records apart."""

    def name(row: Row) -> tuple[Any, ...]:
        return row["set"], row["kind"], row["n"], row["seed"]

    seen = {
        name(row)
        for row in keep(rows, variant="full")
        if any((one["original_p"] or 1.0) <= _ALPHA for one in row["contrasts"].values())
    }
    return [row for row in rows if name(row) in seen]


def is_alarm(row: Row) -> bool:
    """A finding against the model."""
    return row["verdict"] in ("residual", "displaced")


def is_clear(row: Row) -> bool:
    """Erased, if only what the model says is asked."""
    return bool(row["says"] == "erased")


def called(verdict: str, key: str = "verdict") -> Test:
    """A test for one verdict; ``half`` has those at a limit of one half."""
    return lambda row: bool(row[key] == verdict)


def any_of(verdicts: Iterable[str], key: str = "verdict") -> Test:
    """A test for several verdicts."""
    words = tuple(verdicts)
    return lambda row: row[key] in words


def remaining_of(row: Row, contrast: str, scale: str) -> float | None:
    """How much remains by a contrast, on a scale."""
    found = row["contrasts"].get(contrast, {}).get("remaining", {}).get(scale)
    return None if found is None else found[0]


def count(rows: Rows, test: Test) -> str:
    """Number of rows that pass, and percent."""
    return f"{sum(map(test, rows))} ({100 * np.mean([test(row) for row in rows]):.1f}%)" if rows else ""


def percent(rows: Rows, test: Test) -> str:
    """Percent of rows that pass, without decimals."""
    return f"{100 * np.mean([test(row) for row in rows]):.0f}%" if rows else ""


def part(rows: Rows, test: Test) -> str:
    """How many of how many rows pass."""
    return f"{sum(map(test, rows))}/{len(rows)}" if rows else ""


def interval(rows: Rows, test: Test) -> str:
    """Clopper-Pearson interval of the share of rows that pass."""
    if not rows:
        return ""
    n, k = len(rows), sum(map(test, rows))
    low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
    return f"{100 * low:.1f}-{100 * high:.1f}%"


def tabulate(head: str, lines: Iterable[list[str]]) -> str:
    """A Markdown table; its heads are separated by commas."""
    return "\n".join(markdown_table([title.replace(";", ",") for title in head.split(", ")], lines))


def by(rows: Rows, key: str) -> list[tuple[Any, Rows]]:
    """Rows of each value of a key, in the order of their first row."""
    found: dict[Any, Rows] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return list(found.items())


def with_total(rows: Rows, key: str) -> list[tuple[str, Rows]]:
    """The same, and all rows together."""
    return [*by(rows, key), ("**all**", rows)]


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
