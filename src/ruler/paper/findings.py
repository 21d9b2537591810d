"""What section 5.5 finds, each finding confirmed or refuted by our numbers under a rule stated beforehand."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ruler.paper.published import published_numbers
from ruler.paper.results import CONDITION, DIAGNOSTIC_STUDIES, N_SEEDS, gather_conditions, main_rows, title_of
from ruler.paper.tables.diagnostics import pair_models, tell_size
from ruler.stats.intervals import difference_interval

if TYPE_CHECKING:
    import pandas as pd

NEAR, FAR, HIGH, CLINICAL_NEAR = 0.03, 0.10, 0.15, 0.04
RULE = (
    "Confirmed: every check holds. Refuted: fewer than half do. Partly confirmed: anything between. Not judged: a "
    f"check has fewer than the paper's {N_SEEDS} seeds."
)
_RISE = "rise"


class Check(NamedTuple):
    """One number that a finding rests on; NaN where the paper has none or ours was not measured."""

    label: str
    paper: float
    ours: float
    control: float  # what ours is to be read beside
    n: int  # seeds behind ours
    holds: bool | None  # None with too few seeds


class Finding(NamedTuple):
    """A statement of the paper, when a check of it holds, what the control is, and the measured numbers it rests on."""

    claim: str
    rule: str
    control_name: str
    numbers: str  # a query
    keys: Sequence[str]  # that tell these numbers apart
    is_met: Callable[[Mapping[Any, Any]], bool]
    control: str = "m4_held_out"
    ours: str = "m4"
    n: str = "n"

    def check(self, measured: "pd.DataFrame") -> list[Check]:
        """A check per number, named by its keys and by how the rows of its dataset differ from the paper's."""
        checks = []
        for row in measured.query(self.numbers).to_dict("records"):
            names = (f"{100 * row[key]:g}%" if key == "forget_fraction" else title_of(row[key]) for key in self.keys)
            label = row["label"] or ", ".join(names) + row["size"]
            paper = math.nan if self.ours == "gap" else row["paper"]
            holds = self.is_met(row) if row[self.n] >= N_SEEDS and not math.isnan(row[self.ours]) else None
            checks.append(Check(label, paper, row[self.ours], row[self.control], int(row[self.n]), holds))
        return checks


def check_findings(results: "pd.DataFrame") -> "pd.DataFrame":
    """Which findings of section 5.5 do these checked results confirm?

    Returns:
        One row per check: ``finding`` (number), ``claim``, ``outcome``, ``rule``, ``label``, ``paper``, ``ours``,
        ``control``, ``n``, ``holds``, ``control_name``. Empty where no diagnostic study was run in full.
    """
    import pandas as pd

    full = results[results["size"] == "full"]
    if not full["study"].isin(DIAGNOSTIC_STUDIES).any():
        return pd.DataFrame()
    measured = _measure(full)
    records = []
    for number, finding in enumerate(FINDINGS, start=1):
        checks = finding.check(measured)
        shared = {"finding": number, "claim": finding.claim, "outcome": judge(checks), "rule": finding.rule}
        records += [{**shared, **check._asdict(), "control_name": finding.control_name} for check in checks]
    return pd.DataFrame.from_records(records)


def judge(checks: Sequence[Check]) -> str:
    """Is a finding confirmed, given its checks? ``RULE`` in code."""
    if not any(check.n for check in checks):
        return "not run"
    if any(check.holds is None for check in checks):
        return "not judged"
    n_held = sum(bool(check.holds) for check in checks)
    if n_held == len(checks):
        return "confirmed"
    return "refuted" if 2 * n_held < len(checks) else "partly confirmed"


def _measure(results: "pd.DataFrame") -> "pd.DataFrame":
    """The published means of M4, with ours in that condition, in the oracle and on the CNN, and gaps between models.

    The gap of an original of faces is to its oracles, that of an unlearned model to the originals.
    """
    import pandas as pd

    published = published_numbers().query("column == 'm4_mean'")
    is_whole = published["table"].isin(["12", "13", "14"]) | (published["study"] == "clinical")
    parts = [gather_conditions(results, study).assign(study=study) for study in DIAGNOSTIC_STUDIES]
    ours = pd.concat(parts)[["study", *CONDITION, "m4", "m4_held_out", "n"]]
    found = published[is_whole].merge(ours, on=["study", *CONDITION], how="left")
    for key, value in (("method", "oracle"), ("architecture", "small_cnn")):
        place = [name for name in ("study", *CONDITION) if name != key]
        others = ours.loc[ours[key] == value, [*place, "m4", "n"]]
        found = found.merge(others, on=place, how="left", suffixes=("", f"_{value}"))
    found["n_both"] = found[["n", "n_small_cnn"]].min(axis=1)
    runs_of: dict[tuple[Any, ...], pd.DataFrame] = {}
    sizes: dict[tuple[Any, ...], str] = {}
    more = []
    for study in DIAGNOSTIC_STUDIES:
        rows = main_rows(results, study)
        runs_of |= {(study, *place): runs for place, runs in rows.groupby(list(CONDITION[:3]))}
        sizes |= {(study, name): tell_size(str(name), runs) for name, runs in rows.groupby("dataset")}
    for row in found.to_dict("records"):
        runs = runs_of.get((row["study"], *(row[key] for key in CONDITION[:3])), results.iloc[:0])
        if (row["study"], row["method"]) == ("faces", "original"):
            gap = pair_models(runs)
        else:
            gap = difference_interval(*(runs.loc[runs["method"] == name, "m4"] for name in (row["method"], "original")))
        size = sizes.get((row["study"], row["dataset"]))
        more.append({"size": f" ({size})" if size else "", "gap": gap.value, "gap_low": gap.low, "n_gap": gap.n})
    found = found.join(pd.DataFrame(more)).fillna({"n": 0, "n_both": 0, "n_gap": 0}).assign(label="")
    higgs = found.query("dataset == 'higgs' and architecture == 'ft_transformer'").set_index("method")
    after, before = higgs.loc["neggrad_plus"], higgs.loc["original"]
    rise = {"method": _RISE, "label": "rise over the original model", "paper": after["paper"] - before["paper"]}
    rise |= {"m4": after["gap"], "gap_low": after["gap_low"], "n": after["n_gap"], "m4_held_out": before["m4"]}
    return pd.concat([found, pd.DataFrame([rise])], ignore_index=True)


FINDINGS = (
    Finding(
        "Original models lie near 0.50 on large tables and images.",
        f"M4 is within {NEAR:g} of 0.50: the largest published distance, 0.013, and two standard errors of a mean of "
        "five runs with the published spread.",
        "M4 of held-out records",
        "table in ['12', '13'] and method == 'original'",
        ("dataset", "architecture"),
        lambda row: abs(row["m4"] - 0.5) < NEAR,
    ),
    Finding(
        "NegGrad+ and SCRUB push M4 far below 0.50 on ResNet-18 but not on the three-layer CNN.",
        f"M4 is more than {FAR:g} below 0.50 on ResNet-18, and not on the CNN.",
        "M4 on the CNN",
        "table == '13' and architecture == 'resnet18' and method in ['neggrad_plus', 'scrub']",
        ("dataset", "method"),
        lambda row: row["m4"] < 0.5 - FAR <= row["m4_small_cnn"],
        control="m4_small_cnn",
        n="n_both",
    ),
    Finding(
        "NegGrad+ raises M4 above 0.50 on Higgs with the FT-Transformer.",
        f"M4 is more than {NEAR:g} above 0.50; the rise over the original model's M4 has a 95% interval above zero.",
        "M4 of held-out records; M4 of the original model",
        "dataset == 'higgs' and architecture == 'ft_transformer' and method == 'neggrad_plus' or method == @_RISE",
        ("dataset", "architecture"),
        lambda row: row["gap_low"] > 0 if row["method"] == _RISE else row["m4"] > 0.5 + NEAR,
    ),
    Finding(
        "On faces M4 is high before unlearning.",
        f"M4 is more than {HIGH:g} above 0.50, the distance that the paper calls substantial.",
        "M4 of the same faces in the oracle",
        "table == '14' and method == 'original'",
        ("forget_fraction",),
        lambda row: row["m4"] > 0.5 + HIGH,
        control="m4_oracle",
    ),
    Finding(
        "The high M4 on faces is memorisation of identities that the model was trained on.",
        "M4 of the original minus M4 of the oracle, which was not trained on them, has a 95% interval above zero.",
        "M4 of the same faces in the oracle",
        "table == '14' and method == 'original'",
        ("forget_fraction",),
        lambda row: row["gap_low"] > 0,
        control="m4_oracle",
        ours="gap",
        n="n_gap",
    ),
    Finding(
        "On faces no method returns M4 to its null.",
        f"M4 after unlearning is not within {NEAR:g} of 0.50.",
        "M4 of held-out identities",
        "table == '14' and method != 'original'",
        ("method", "forget_fraction"),
        lambda row: not abs(row["m4"] - 0.5) < NEAR,
    ),
    Finding(
        "On clinical text M4 lies near its null before unlearning.",
        f"M4 is within {CLINICAL_NEAR:g} of 0.50: the paper calls its 0.537 only slightly above.",
        "M4 of held-out documents",
        "table == 'text' and study == 'clinical' and method == 'original'",
        ("forget_fraction",),
        lambda row: abs(row["m4"] - 0.5) < CLINICAL_NEAR,
    ),
)
