"""`ruler demo`: the main job on built-in data, from training to two audits and their reports."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ruler.core.errors import InputError
from ruler.core.progress import show_progress

if TYPE_CHECKING:
    from torch import nn

    from ruler.auditing.findings import Report
    from ruler.core.types import Embeddings

_SEED = 0
_FORGET_FRACTION = 0.15
_EPOCHS = 200  # until the original has learned most of the wrong labels
_SCRUB_EPOCHS = 40  # chosen to succeed: at the paper's 10 a residual is left here, at 50 the audit cannot tell
_TITLES = {"fine_tuning": "Fine-Tuning", "scrub": "SCRUB"}
_SIDES = ("forget", "retain", "held_out")
_N_STEPS = 6


@dataclass(frozen=True, eq=False)
class _Scene:
    """Records by side, and the models that were made from them."""

    records: dict[str, Any]
    models: "dict[str, nn.Module]"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the reports and the embeddings.")] = Path("ruler-demo"),
) -> None:
    """Train on Breast Cancer, unlearn 68 records in two ways, and audit both."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out must be a folder; got the file {out}. Choose another name.")
    with show_progress("training, unlearning, auditing", _N_STEPS) as advance:
        scene = _train(advance)
        reports = {}
        for method in _TITLES:
            reports[method] = _audit(scene, method)
            advance(1)
    for method, report in reports.items():
        report.save(out / method)
    _save_embeddings(scene, out / "embeddings")
    _tell(scene, reports, out)


def _train(advance: Callable[[float], None]) -> _Scene:
    import torch

    from ruler.cli.audit_records import NamedRecords
    from ruler.data import load_tabular, partition_rows, split
    from ruler.training import TrainingSettings
    from ruler.training.classifier import train_tabular
    from ruler.unlearning import FineTuningSettings, ScrubSettings, unlearn

    torch.set_num_threads(1)  # with matrices this small, several only wait for each other
    data = split(load_tabular("breast_cancer"))
    x, y = data.train_features, data.train_target.copy()
    part = partition_rows(len(x), _FORGET_FRACTION)
    y[part.forget] = 1 - y[part.forget]
    rows = {"forget": (x[part.forget], y[part.forget]), "retain": (x[part.retain], y[part.retain])}
    ids = {"forget": data.train_ids[part.forget], "retain": data.train_ids[part.retain], "held_out": data.test_ids}
    settings = TrainingSettings(epochs=_EPOCHS)
    models: dict[str, nn.Module] = {}
    for name, partition in (("original", None), ("oracle", part)):
        models[name] = train_tabular(x, y, partition, seed=_SEED, settings=settings)
        advance(1)
    for name, chosen in (("fine_tuning", FineTuningSettings()), ("scrub", ScrubSettings(epochs=_SCRUB_EPOCHS))):
        models[name] = unlearn(name, models["original"], forget=rows["forget"], retain=rows["retain"], settings=chosen)
        advance(1)
    rows["held_out"] = (data.test_features, data.test_target)
    return _Scene({side: NamedRecords(rows[side], ids[side]) for side in _SIDES}, models)


def _audit(scene: _Scene, method: str) -> "Report":
    from ruler.auditing.models import examine_models

    models = {"unlearned": scene.models[method], "oracle": scene.models["oracle"], "original": scene.models["original"]}
    records: dict[Any, Any] = scene.records
    return examine_models(models, records)


def _save_embeddings(scene: _Scene, folder: Path) -> None:
    from ruler.embeddings import embed, save_embeddings

    folder.mkdir(parents=True, exist_ok=True)
    for name, model in scene.models.items():
        for side, data in scene.records.items():
            rows: Embeddings = embed(model, data)
            save_embeddings(rows, folder / f"{name}_{side}.npy")


def _tell(scene: _Scene, reports: "dict[str, Report]", out: Path) -> None:
    n_forget, n_held_out = len(scene.records["forget"]), len(scene.records["held_out"])
    console = Console()
    console.print(
        f"Breast Cancer: {n_forget} of {n_forget + len(scene.records['retain'])} training records got a wrong label on "
        "purpose, so that the original model had to memorise them. Two methods were told to make it forget them. "
        f"{n_held_out} held-out records, which no model was trained on, show what forgetting should look like. "
        "Labels, epochs and methods were chosen so that one method fails and one succeeds: this shows what an audit "
        "sees, and ranks no method.\n"
    )
    console.print(_compare(reports))
    for method, report in reports.items():
        console.print(f"\n{_TITLES[method]}: {report.verdict.upper()}. {report.reason}", highlight=False)
    console.print("\nOpen the reports, or audit the saved embeddings yourself:\n", highlight=False)
    for method in reports:
        console.print(f"  {out / method / 'report.html'}", highlight=False, soft_wrap=True)
    console.print(f"\n{_next_command(out)}", highlight=False, soft_wrap=True)


def _compare(reports: "dict[str, Report]") -> Table:
    titles = {"fine_tuning": "Fine-Tuning (10 epochs)", "scrub": f"SCRUB ({_SCRUB_EPOCHS} epochs)"}
    table = Table("", *(titles[method] for method in reports))
    lines: dict[str, Callable[[Report], str]] = {
        "verdict": lambda report: report.verdict,
        "M2, AUC (0.5 is no trace)": lambda report: _auc(report, "m2"),
        "M4, AUC (0.5 is no trace)": lambda report: _auc(report, "m4"),
        "left of the original's M2": _share,
        "answers with the wrong label": lambda report: _accuracy(report, "forget"),
        "accuracy, held-out records": lambda report: _accuracy(report, "test"),
    }
    for name, show in lines.items():
        table.add_row(name, *(show(report) for report in reports.values()))
    return table


def _auc(report: "Report", metric: str) -> str:
    found = report.metrics[metric]
    return f"{found.effect:.2f} [{found.effect_interval[0]:.2f}, {found.effect_interval[1]:.2f}]"


def _share(report: "Report") -> str:
    share = report.metrics["m2"].share_left
    return "-" if share is None else f"{share:.0%}"


def _accuracy(report: "Report", side: str) -> str:
    original, unlearned = (report.outputs[model][f"{side}_accuracy"] for model in ("original", "unlearned"))
    return f"{unlearned:.0%} (original {original:.0%})"


def _next_command(out: Path) -> str:
    models = {"unlearned": "fine_tuning", "oracle": "oracle", "original": "original"}
    words = [
        f"--{role}-{side.replace('_', '-')} {out / 'embeddings' / f'{name}_{side}.npy'}"
        for role, name in models.items()
        for side in _SIDES
    ]
    return "  ruler audit " + " \\\n    ".join(words)
