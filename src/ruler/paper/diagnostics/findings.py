"""What section 5.5 finds, each finding confirmed or refuted by our numbers under a rule stated beforehand."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ruler.core.optional import load_optional
from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.diagnostics.conditions import N_SEEDS, gather_conditions, main_rows
from ruler.paper.intervals import Interval, difference_interval
from ruler.paper.names import DIAGNOSTIC_STUDIES, title_of
from ruler.paper.published import load_table
from ruler.paper.tables.controls import pair_models
from ruler.paper.tables.diagnostics import tell_size

if TYPE_CHECKING:
    import pandas as pd

Outcome = Literal["confirmed", "partly confirmed", "refuted", "not judged", "not run"]
NEAR, FAR, HIGH, CLINICAL_NEAR = 0.03, 0.10, 0.15, 0.04
RULE = (
    "Confirmed: every check holds. Refuted: fewer than half do. Partly confirmed: anything between. Not judged: a "
    f"check has fewer than the paper's {N_SEEDS} seeds."
)
_OVER_DISPLACING = ("neggrad_plus", "scrub")
_KEYS = ("dataset", "architecture", "forget_fraction", "method")


@dataclass(frozen=True)
class Check:
    """One number that a finding rests on.

    Args:
        label: Where it was measured.
        paper: The published number; NaN where the paper has none.
        ours: Our number; NaN where it was not measured.
        control: The number that it is to be read beside.
        n: Seeds behind ours.
        holds: Whether ours meets the finding's rule; None with too few seeds.
    """

    label: str
    paper: float
    ours: float
    control: float
    n: int
    holds: bool | None


class Measured:
    """Conditions of all diagnostic studies, by the keys of a published number."""

    def __init__(self, results: "pd.DataFrame") -> None:
        self._rows = {study: main_rows(results, study) for study in DIAGNOSTIC_STUDIES}
        self._found = {
            (study, *(row[key] for key in _KEYS)): row
            for study in DIAGNOSTIC_STUDIES
            for row in gather_conditions(results, study).to_dict("records")
        }

    def find(self, number: Mapping[Any, Any], **other: Any) -> Mapping[Any, Any]:
        """The condition of a published number, or of one with other keys; empty where it was not run."""
        place = {**number, **other}
        return self._found.get((place["study"], *(place[key] for key in _KEYS)), {})

    def list_runs(self, number: Mapping[Any, Any], *methods: str) -> "pd.DataFrame":
        """Runs of these methods under the other keys of a published number."""
        rows = self._rows[number["study"]]
        for key in _KEYS[:3]:
            rows = rows[rows[key] == number[key]]
        return rows[rows["method"].isin(methods)]

    def tell_size(self, number: Mapping[Any, Any]) -> str:
        """In brackets, how the rows of a published number's dataset differ from the paper's; empty if they do not."""
        rows = self._rows[number["study"]]
        size = tell_size(number["dataset"], rows[rows["dataset"] == number["dataset"]])
        return f" ({size})" if size else ""


@dataclass(frozen=True)
class Finding:
    """A statement of the paper and how it is checked.

    Args:
        claim: The statement.
        rule: When a check holds.
        control: What the control of a check is.
        check: Conditions -> checks, one for each number the statement rests on.
    """

    claim: str
    rule: str
    control: str
    check: Callable[[Measured], list[Check]]


def judge(checks: Sequence[Check]) -> Outcome:
    """Is a finding confirmed, given its checks? ``RULE`` in code.

    Example:
        >>> held, failed = (Check("", 0.5, 0.5, 0.5, 5, holds) for holds in (True, False))
        >>> judge([held, held]), judge([held, failed]), judge([held, failed, failed])
        ('confirmed', 'partly confirmed', 'refuted')
    """
    if not any(check.n for check in checks):
        return "not run"
    if any(check.holds is None for check in checks):
        return "not judged"
    n_held = sum(bool(check.holds) for check in checks)
    if n_held == len(checks):
        return "confirmed"
    return "refuted" if 2 * n_held < len(checks) else "partly confirmed"


def check_findings(results: "pd.DataFrame") -> "pd.DataFrame":
    """Which findings of section 5.5 do these results confirm?

    Args:
        results: Checked results, one row a finished cell.

    Returns:
        One row a check: ``finding`` (number), ``claim``, ``outcome``, ``rule``, ``label``, ``paper``, ``ours``,
        ``control``, ``control_name``, ``n``, ``holds``. Empty where no diagnostic study was run in full.
    """
    pandas = load_optional("pandas", "judging the findings")
    full = results[results["size"] == "full"]
    measured = Measured(full)
    records = []
    for number, finding in enumerate(FINDINGS, start=1):
        checks = finding.check(measured)
        shared = {"finding": number, "claim": finding.claim, "outcome": judge(checks), "rule": finding.rule}
        records += [{**shared, **asdict(check), "control_name": finding.control} for check in checks]
    frame: pd.DataFrame = pandas.DataFrame.from_records(records)
    is_run = full["study"].isin(DIAGNOSTIC_STUDIES).any()
    return frame if is_run else frame.iloc[:0]


def _published(table: str, study: str, *methods: str) -> Iterator[dict[Any, Any]]:
    numbers = load_table(table)
    picked = numbers[(numbers["study"] == study) & (numbers["column"] == "m4_mean") & numbers["method"].isin(methods)]
    yield from picked.to_dict("records")


def _label(number: Mapping[Any, Any], *keys: str) -> str:
    texts = (f"{100 * number[key]:g}%" if key == "forget_fraction" else title_of(number[key]) for key in keys)
    return ", ".join(texts)


def _make(label: str, paper: float, ours: float, control: float, n: int, is_met: bool) -> Check:
    return Check(label, paper, ours, control, n, is_met if n >= N_SEEDS and not math.isnan(ours) else None)


def _check_ranks(
    measured: Measured,
    numbers: Iterator[dict[Any, Any]],
    is_met: Callable[[float], bool],
    *keys: str,
    control: Callable[[Mapping[Any, Any]], float] | None = None,
) -> list[Check]:
    checks = []
    for number in numbers:
        row = measured.find(number)
        ours = row.get("m4", math.nan)
        beside = control(number) if control else row.get("m4_held_out", math.nan)
        label = _label(number, *keys) + measured.tell_size(number)
        checks.append(_make(label, number["paper"], ours, beside, row.get("n", 0), is_met(ours)))
    return checks


def _is_near(value: float, reach: float = NEAR) -> bool:
    return abs(value - 0.5) < reach


def _check_originals(measured: Measured) -> list[Check]:
    numbers = (*_published("12", "large-tabular", "original"), *_published("13", "images", "original"))
    return _check_ranks(measured, iter(numbers), _is_near, "dataset", "architecture")


def _check_over_displacement(measured: Measured) -> list[Check]:
    checks = []
    for number in _published("13", "images", *_OVER_DISPLACING):
        if number["architecture"] != "resnet18":
            continue
        deep, small = measured.find(number), measured.find(number, architecture="small_cnn")
        ours, control = deep.get("m4", math.nan), small.get("m4", math.nan)
        n = min(deep.get("n", 0), small.get("n", 0))
        is_met = ours < 0.5 - FAR <= control
        checks.append(_make(_label(number, "dataset", "method"), number["paper"], ours, control, n, is_met))
    return checks


def _check_higgs(measured: Measured) -> list[Check]:
    numbers = _published("12", "large-tabular", "neggrad_plus", "original")
    by_method = {
        number["method"]: number
        for number in numbers
        if (number["dataset"], number["architecture"]) == ("higgs", "ft_transformer")
    }
    after, before = by_method["neggrad_plus"], by_method["original"]
    [above] = _check_ranks(measured, iter([after]), lambda value: value > 0.5 + NEAR, "dataset", "architecture")
    ranks = [measured.list_runs(number, number["method"])["m4"] for number in (after, before)]
    rise = difference_interval(*ranks)
    paper = after["paper"] - before["paper"]
    control = measured.find(before).get("m4", math.nan)
    return [above, _make("rise over the original model", paper, rise.value, control, rise.n, rise.low > 0)]


def _oracle_rank(measured: Measured) -> Callable[[Mapping[Any, Any]], float]:
    return lambda number: float(measured.find(number, method="oracle").get("m4", math.nan))


def _check_faces(measured: Measured) -> list[Check]:
    numbers = _published("14", "faces", "original")
    oracle = _oracle_rank(measured)
    return _check_ranks(measured, numbers, lambda value: value > 0.5 + HIGH, "forget_fraction", control=oracle)


def _check_memorisation(measured: Measured) -> list[Check]:
    checks = []
    for number in _published("14", "faces", "original"):
        excess: Interval = pair_models(measured.list_runs(number, "original", "oracle"))
        control = _oracle_rank(measured)(number)
        label = _label(number, "forget_fraction")
        checks.append(_make(label, math.nan, excess.value, control, excess.n, excess.low > 0))
    return checks


def _check_no_method_returns(measured: Measured) -> list[Check]:
    numbers = _published("14", "faces", *APPROXIMATE_METHODS)
    return _check_ranks(measured, numbers, lambda value: not _is_near(value), "method", "forget_fraction")


def _check_clinical(measured: Measured) -> list[Check]:
    numbers = _published("text", "clinical", "original")
    return _check_ranks(measured, numbers, lambda value: _is_near(value, CLINICAL_NEAR), "forget_fraction")


_HELD_OUT = "M4 of held-out records"
FINDINGS = (
    Finding(
        "Original models lie near 0.50 on large tables and images.",
        f"M4 is within {NEAR:g} of 0.50: the largest published distance, 0.013, and two standard errors of a mean of "
        "five runs with the published spread.",
        _HELD_OUT,
        _check_originals,
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
        _check_faces,
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
        _check_no_method_returns,
    ),
    Finding(
        "On clinical text M4 lies near its null before unlearning.",
        f"M4 is within {CLINICAL_NEAR:g} of 0.50: the paper calls its 0.537 only slightly above.",
        "M4 of held-out documents",
        _check_clinical,
    ),
)
