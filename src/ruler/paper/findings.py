"""What section 5.5 finds, each finding confirmed or refuted by our numbers under a rule stated beforehand."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.published import load_table
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
_STUDIES = {"12": "large-tabular", "13": "images", "14": "faces", "text": "clinical"}  # by the table that prints them
_MISSING = {"m4": math.nan, "m4_held_out": math.nan, "n": 0}
Place = Mapping[Any, Any]  # the keys of a published number


class Check(NamedTuple):
    """One number that a finding rests on; NaN where the paper has none or ours was not measured."""

    label: str
    paper: float
    ours: float
    control: float  # what ours is to be read beside
    n: int  # seeds behind ours
    holds: bool | None  # None with too few seeds


class Finding(NamedTuple):
    """A statement of the paper, when a check of it holds, what the control is, and the checks it rests on."""

    claim: str
    rule: str
    control: str
    check: "Callable[[_Measured], list[Check]]"


def check_findings(results: "pd.DataFrame") -> "pd.DataFrame":
    """Which findings of section 5.5 do these checked results confirm?

    Returns:
        One row per check: ``finding`` (number), ``claim``, ``outcome``, ``rule``, ``label``, ``paper``, ``ours``,
        ``control``, ``n``, ``holds``, ``control_name``. Empty where no diagnostic study was run in full.
    """
    import pandas as pd

    full = results[results["size"] == "full"]
    measured = _Measured(full)
    records = []
    for number, finding in enumerate(FINDINGS, start=1):
        checks = finding.check(measured)
        shared = {"finding": number, "claim": finding.claim, "outcome": judge(checks), "rule": finding.rule}
        records += [{**shared, **check._asdict(), "control_name": finding.control} for check in checks]
    frame = pd.DataFrame.from_records(records)
    return frame if full["study"].isin(DIAGNOSTIC_STUDIES).any() else frame.iloc[:0]


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


class _Measured:
    """Conditions of all diagnostic studies, found by the keys of a published number."""

    def __init__(self, results: "pd.DataFrame") -> None:
        self._rows = {study: main_rows(results, study) for study in DIAGNOSTIC_STUDIES}
        self._conditions = {
            (study, *(row[key] for key in CONDITION)): row
            for study in DIAGNOSTIC_STUDIES
            for row in gather_conditions(results, study).to_dict("records")
        }

    def find(self, number: Place, **other: Any) -> Place:
        """The condition of a published number, or of one with other keys; NaN and no runs where it was not run."""
        place = {**number, **other}
        return self._conditions.get((place["study"], *(place[key] for key in CONDITION)), _MISSING)

    def list_runs(self, number: Place, *methods: str) -> "pd.DataFrame":
        """Runs of these methods under the other keys of a published number."""
        rows = self._rows[number["study"]]
        is_chosen = rows["method"].isin(methods)
        for key in CONDITION[:3]:
            is_chosen &= rows[key] == number[key]
        return rows[is_chosen]

    def label(self, number: Place, keys: Sequence[str]) -> str:
        """A published number by some of its keys, and how the rows of its dataset differ from the paper's."""
        texts = (f"{100 * number[key]:g}%" if key == "forget_fraction" else title_of(number[key]) for key in keys)
        rows = self._rows[number["study"]]
        size = tell_size(number["dataset"], rows[rows["dataset"] == number["dataset"]])
        return ", ".join(texts) + (f" ({size})" if size else "")


def _list_published(tables: Sequence[str], methods: Sequence[str], **keys: str) -> list[Place]:
    """Mean M4 of these methods in tables of diagnostic studies."""
    found = [number for table in tables for number in load_table(table).to_dict("records")]
    wanted = {"column": "m4_mean", **keys}
    return [
        number
        for number in found
        if number["method"] in methods
        and number["study"] == _STUDIES[number["table"]]
        and all(number[key] == value for key, value in wanted.items())
    ]


def _make(label: str, paper: float, ours: float, control: float, n: int, is_met: bool) -> Check:
    return Check(label, paper, ours, control, n, is_met if n >= N_SEEDS and not math.isnan(ours) else None)


def _check_ranks(
    measured: _Measured,
    tables: Sequence[str],
    methods: Sequence[str],
    keys: Sequence[str],
    is_met: Callable[[float], bool],
    *,
    is_against_oracle: bool = False,
    **only: Any,
) -> list[Check]:
    """M4 of each published number's condition, beside held-out records or beside the same records in the oracle."""
    checks = []
    for number in _list_published(tables, methods, **only):
        row = measured.find(number)
        control = measured.find(number, method="oracle")["m4"] if is_against_oracle else row["m4_held_out"]
        label = measured.label(number, keys)
        checks.append(_make(label, number["paper"], row["m4"], control, row["n"], is_met(row["m4"])))
    return checks


def _check_over_displacement(measured: _Measured) -> list[Check]:
    checks = []
    for number in _list_published(["13"], ["neggrad_plus", "scrub"], architecture="resnet18"):
        deep, small = measured.find(number), measured.find(number, architecture="small_cnn")
        label, is_met = measured.label(number, ("dataset", "method")), deep["m4"] < 0.5 - FAR <= small["m4"]
        checks.append(_make(label, number["paper"], deep["m4"], small["m4"], min(deep["n"], small["n"]), is_met))
    return checks


def _check_higgs(measured: _Measured) -> list[Check]:
    place: dict[str, Any] = {"dataset": "higgs", "architecture": "ft_transformer"}
    methods = ("neggrad_plus", "original")
    after, before = (_list_published(["12"], [method], **place)[0] for method in methods)
    above = _check_ranks(measured, ["12"], ["neggrad_plus"], tuple(place), lambda m4: m4 > 0.5 + NEAR, **place)
    rise = difference_interval(*(measured.list_runs(after, method)["m4"] for method in methods))
    paper, control = after["paper"] - before["paper"], measured.find(before)["m4"]
    return [*above, _make("rise over the original model", paper, rise.value, control, rise.n, rise.low > 0)]


def _check_memorisation(measured: _Measured) -> list[Check]:
    checks = []
    for number in _list_published(["14"], ["original"]):
        excess = pair_models(measured.list_runs(number, "original", "oracle"))
        control, label = measured.find(number, method="oracle")["m4"], measured.label(number, ("forget_fraction",))
        checks.append(_make(label, math.nan, excess.value, control, excess.n, excess.low > 0))
    return checks


FINDINGS = (
    Finding(
        "Original models lie near 0.50 on large tables and images.",
        f"M4 is within {NEAR:g} of 0.50: the largest published distance, 0.013, and two standard errors of a mean of "
        "five runs with the published spread.",
        "M4 of held-out records",
        lambda measured: _check_ranks(
            measured, ["12", "13"], ["original"], ("dataset", "architecture"), lambda m4: abs(m4 - 0.5) < NEAR
        ),
    ),
    Finding(
        "NegGrad+ and SCRUB push M4 far below 0.50 on ResNet-18 but not on the three-layer CNN.",
        f"M4 is more than {FAR:g} below 0.50 on ResNet-18, and not on the CNN.",
        "M4 on the CNN",
        _check_over_displacement,
    ),
    Finding(
        "NegGrad+ raises M4 above 0.50 on Higgs with the FT-Transformer.",
        f"M4 is more than {NEAR:g} above 0.50; the rise over the original model's M4 has a 95% interval above zero.",
        "M4 of held-out records; M4 of the original model",
        _check_higgs,
    ),
    Finding(
        "On faces M4 is high before unlearning.",
        f"M4 is more than {HIGH:g} above 0.50, the distance that the paper calls substantial.",
        "M4 of the same faces in the oracle",
        lambda measured: _check_ranks(
            measured, ["14"], ["original"], ("forget_fraction",), lambda m4: m4 > 0.5 + HIGH, is_against_oracle=True
        ),
    ),
    Finding(
        "The high M4 on faces is memorisation of identities that the model was trained on.",
        "M4 of the original minus M4 of the oracle, which was not trained on them, has a 95% interval above zero.",
        "M4 of the same faces in the oracle",
        _check_memorisation,
    ),
    Finding(
        "On faces no method returns M4 to its null.",
        f"M4 after unlearning is not within {NEAR:g} of 0.50.",
        "M4 of held-out identities",
        lambda measured: _check_ranks(
            measured, ["14"], APPROXIMATE_METHODS, ("method", "forget_fraction"), lambda m4: not abs(m4 - 0.5) < NEAR
        ),
    ),
    Finding(
        "On clinical text M4 lies near its null before unlearning.",
        f"M4 is within {CLINICAL_NEAR:g} of 0.50: the paper calls its 0.537 only slightly above.",
        "M4 of held-out documents",
        lambda measured: _check_ranks(
            measured, ["text"], ["original"], ("forget_fraction",), lambda m4: abs(m4 - 0.5) < CLINICAL_NEAR
        ),
    ),
)
