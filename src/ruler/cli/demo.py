"""`ruler demo`: the main job on built-in data, from training to two audits and their reports."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ruler.cli.options import check_out
from ruler.core.files import writing_safely
from ruler.core.progress import show_progress
from ruler.unlearning.fine_tuning import FINE_TUNING

if TYPE_CHECKING:
    from torch import nn

    from ruler.auditing.findings import Report

EXAMPLE = "Example: ruler demo --out ruler-demo"

_SEED = 0
_SIZES = {"forget": 300, "held_out": 600}
_EPOCHS = 300  # until the original knows all the wrong labels
_FINE_TUNING_EPOCHS = 50
_TITLES = {"fine_tuning": FINE_TUNING.title, "retraining": "Retraining"}
_N_STEPS = 6


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the reports and the embeddings.")] = Path("ruler-demo"),
) -> None:
    """Train on images of digits, unlearn 300 of them in two ways, and audit both."""
    check_out(out)
    from ruler.auditing.models import audit_models

    with show_progress("training, unlearning, auditing", _N_STEPS) as advance:
        records, models = _train(_SEED, advance)
        reports: dict[str, Report] = {}
        for method in _TITLES:
            oracle, original = models["oracle"], models["original"]
            reports[method] = audit_models(models[method], oracle=oracle, original=original, **records)
            advance(1)
    from ruler.embeddings import embed, save_embeddings

    for method, report in reports.items():
        report.save(out / method)
    for name, model in models.items():
        with writing_safely(out):
            (out / "embeddings" / name).mkdir(parents=True, exist_ok=True)
        for side, data in records.items():
            save_embeddings(embed(model, data), out / "embeddings" / name / f"{side}.npz")
    _tell({side: len(data) for side, data in records.items()}, reports, out)


def _train(seed: int, advance: Callable[[float], None]) -> "tuple[dict[str, Any], dict[str, nn.Module]]":
    """Train on digits from two sources, one with wrong labels: the original on both, the others on the sound one.

    Returns records by side, and models by name.
    """
    import numpy as np
    import torch
    from torch import nn

    from ruler.data.bundled import read_bundled
    from ruler.embeddings.bundle.records import NamedRecords
    from ruler.training.classifier import train_classifier
    from ruler.training.settings import TrainingSettings
    from ruler.unlearning import FineTuningSettings, unlearn

    torch.set_num_threads(1)  # with matrices this small, several only wait for each other
    digits = read_bundled("digits.csv.gz", "the demo")
    images, labels = (digits[:, :-1] / 16).astype(np.float32), digits[:, -1].astype(np.int64)
    random = np.random.default_rng(seed)
    sizes = np.cumsum(list(_SIZES.values()))
    rows = dict(zip((*_SIZES, "retain"), np.split(random.permutation(len(images)), sizes), strict=True))
    for side in _SIZES:
        labels[rows[side]] = (labels[rows[side]] + random.integers(1, 10, len(rows[side]))) % 10
    rows["all"] = np.concatenate([rows["forget"], rows["retain"]])
    data = {side: (images[found], labels[found]) for side, found in rows.items()}

    def build() -> nn.Module:
        hidden = [part for _ in range(3) for part in (nn.Linear(64, 64), nn.Tanh())]
        return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), *hidden, nn.Linear(64, 10))

    settings = TrainingSettings(epochs=_EPOCHS, learning_rate=3e-3)
    models = {}
    for name, side, own_seed in (("original", "all", 0), ("oracle", "retain", 0), ("retraining", "retain", 1)):
        models[name] = train_classifier(build, data[side], seed=2 * seed + own_seed, settings=settings)
        advance(1)
    forget, retain, tuning = data["forget"], data["retain"], FineTuningSettings(epochs=_FINE_TUNING_EPOCHS)
    models["fine_tuning"] = unlearn("fine_tuning", models["original"], forget=forget, retain=retain, settings=tuning)
    advance(1)
    sides = ("forget", "retain", "held_out")
    names = {side: np.array([f"image {row}" for row in rows[side]]) for side in sides}
    return {side: NamedRecords(data[side], names[side]) for side in sides}, models


def _tell(sizes: dict[str, int], reports: "dict[str, Report]", out: Path) -> None:
    n_forget, n_trained = sizes["forget"], sizes["forget"] + sizes["retain"]
    console = Console()
    console.print(
        f"Digits: {n_forget} of {n_trained} training images came from a source with wrong labels, so that "
        "the original model had to memorise them. Now that source is to be forgotten. Fine-Tuning continues to train "
        "the original, on the other images. Retraining starts again on the other images, from another seed. "
        f"{sizes['held_out']} more images of the same source, which no model was trained on, are the held-out records: "
        "they show what a forgotten image looks like. Data and methods were chosen so that one method fails and one "
        "succeeds: this shows what an audit sees, and ranks no method.\n"
    )
    console.print("Remaining: 0% is like images that were never trained on, 100% is like images that were.")
    console.print(_compare(reports))
    for method, report in reports.items():
        console.print(f"\n{_TITLES[method]}: {report.verdict.upper()}. {report.reason}", highlight=False)
    console.print("\nOpen the reports, or audit the saved embeddings yourself:\n", highlight=False)
    for method in reports:
        console.print(f"  {out / method / 'report.html'}", highlight=False, soft_wrap=True)
    folders = {"unlearned": "fine_tuning", "oracle": "oracle", "original": "original"}
    words = [f"--{role} {out / 'embeddings' / name}" for role, name in folders.items()]
    console.print(f"\n  ruler audit {' '.join(words)}", highlight=False, soft_wrap=True)


def _compare(reports: "dict[str, Report]") -> Table:
    from ruler.auditing.report.words import format_remaining

    def show_accuracy(report: "Report", side: str) -> str:
        original, unlearned = (report.answers[model][f"{side}_accuracy"] for model in ("original", "unlearned"))
        return f"{unlearned:.0%} (original {original:.0%})"

    table = Table("", *(_TITLES[method] for method in reports))
    table.add_row("verdict", *(report.verdict for report in reports.values()))
    for title, family in (("what it says", "outputs"), ("its layers", "layers")):
        found = (getattr(report, family).remaining for report in reports.values())
        table.add_row(f"remaining in {title}", *map(format_remaining, found))
    table.add_row("answers with the wrong label", *(show_accuracy(report, "forget") for report in reports.values()))
    table.add_row("accuracy, retain records", *(show_accuracy(report, "retain") for report in reports.values()))
    return table
