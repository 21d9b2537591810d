"""What was run: studies, settings, machines and seconds, in words."""

from typing import TYPE_CHECKING

from ruler.paper.markdown import table_lines
from ruler.paper.names import rank_of, title_of
from ruler.paper.plan import compare_with_plan
from ruler.paper.results import split_by

if TYPE_CHECKING:
    import pandas as pd

NOT_RECORDED = "not recorded"
_HEADER = (
    *("Study", "Cells", "Datasets", "Architectures", "Methods", "Forget fractions", "Seeds", "Settings", "Engine"),
    *("Machine", "Work", "Wall"),
)
_PROVENANCE = {
    "device": "Device",
    "ruler_version": "RULER",
    "torch_version": "PyTorch",
    "commit": "Commit",
    "models": "Models",
}
_IF_RECORDED = {"precision": "Precision", "model": "Pretrained model"}  # only some studies have these


def describe_runs(results: "pd.DataFrame") -> list[str]:
    """The section of the page that says what was run, where, and how long it took."""
    lines = ["## Runs", ""]
    if results.empty:
        return [*lines, "No cell is finished.", ""]
    rows = [_describe_study(keys["study"], runs) for keys, runs in split_by(results, "study")]
    lines += table_lines(_HEADER, rows)
    lines += [
        "",
        "Cells: where the whole study has more, their number too; what is missing stands under *Not measured*. "
        "Work: seconds summed over cells. Wall: seconds in which at least one of them ran; pauses do not count.",
        "",
    ]
    named = {name: label for name, label in _IF_RECORDED.items() if list_values(results, name) != NOT_RECORDED}
    lines += [f"- {label}: {list_values(results, column)}" for column, label in {**_PROVENANCE, **named}.items()]
    return [*lines, ""]


def state_seconds(runs: "pd.DataFrame") -> tuple[str, str]:
    """Seconds of work, and seconds in which any cell ran: a run that was resumed does not count its pause."""
    if "elapsed_s" not in runs:
        return NOT_RECORDED, NOT_RECORDED
    import pandas as pd

    work = f"{runs['elapsed_s'].sum():.0f}"
    if "finished_at" not in runs:
        return work, NOT_RECORDED
    ends = pd.to_datetime(runs["finished_at"], utc=True, format="ISO8601")
    spans = pd.DataFrame({"start": ends - pd.to_timedelta(runs["elapsed_s"], unit="s"), "end": ends})
    spans = spans.sort_values("start")
    seen = spans["end"].cummax().shift()  # when all that started before had ended
    fresh = spans["end"] - spans["start"].where(~(seen > spans["start"]), seen)
    return work, f"{fresh.dt.total_seconds().clip(lower=0).sum():.0f}"


def list_values(runs: "pd.DataFrame", column: str) -> str:
    """The values of a column, each once, in order."""
    values = sorted(set(runs[column].dropna().astype(str)) - {""}) if column in runs else []
    return ", ".join(values) or NOT_RECORDED


def _describe_study(study: str, runs: "pd.DataFrame") -> list[str]:
    fractions = sorted(runs["forget_fraction"].unique())
    return [
        study,
        compare_with_plan(study, runs).count(len(runs)),
        str(runs["dataset"].nunique()),
        _list_titles(runs, "architecture"),
        _list_titles(runs, "method"),
        ", ".join(f"{100 * fraction:g}%" for fraction in fractions),
        str(len({*runs["seed"].dropna(), *runs["other_seed"].dropna()})),
        _state_settings(runs),
        list_values(runs, "engine"),
        list_values(runs, "machine"),
        *state_seconds(runs),
    ]


def _list_titles(runs: "pd.DataFrame", key: str) -> str:
    return ", ".join(title_of(name) for name in sorted(runs[key].unique(), key=lambda name: rank_of(key, name)))


def _state_settings(runs: "pd.DataFrame") -> str:
    parts = []
    for column, label in (
        ("learning_rate", "learning rate"),
        ("batch_size", "batch size"),
        ("forget_seed", "forget-set seed"),
        ("teacher_seed", "teacher seed"),
    ):
        values = sorted(runs[column].dropna().unique())
        parts += [f"{label} {', '.join(f'{value:g}' for value in values)}"] if len(values) else []
    if runs["forget_choice"].nunique() > 1:
        parts.append(f"identities {_list_titles(runs, 'forget_choice')}")
    return "; ".join(parts)
