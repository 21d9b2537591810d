"""`ruler demo`: the main job on built-in data, from training to the four metrics."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ruler.core.types import Embeddings

_SEED = 0
_FORGET_FRACTION = 0.05
_METHOD = "fine_tuning"
_READINGS = {
    "m1": ("oracle similarity", "none", "1 is where the oracle places them"),
    "m2": ("calibration gap", "0", "below 0: further from the oracle than retained records"),
    "m3": ("representation shift", "0", "above 0: unlearning moved them towards the oracle"),
    "m4": ("percentile rank", "0.5", "above 0.5: closer to retained records than those are to each other"),
}


def demo(
    out: Annotated[Path | None, typer.Option(help="Folder for the metrics and the embeddings.")] = None,
) -> None:
    """Train on Breast Cancer, unlearn 22 records, and measure what is left of them."""
    from ruler.metrics import all_metrics

    console = Console()
    with console.status("training original and oracle, unlearning, embedding ..."):
        models, title = _make_embeddings()
        metrics = all_metrics(
            models["unlearned_forget"],
            models["unlearned_retain"],
            models["oracle_forget"],
            models["oracle_retain"],
            models["original_forget"],
        )
    console.print(_draw(metrics, title))
    console.print(
        "The nulls are the paper's. They do not hold their error rate: docs/metrics.md says why.", style="dim"
    )
    if out is not None:
        _save(out, models, metrics)
        console.print(f"saved to {out}: metrics.json and the embeddings as .npy")


def _make_embeddings() -> "tuple[dict[str, Embeddings], str]":
    from ruler.data import load_tabular, partition_rows, split
    from ruler.embeddings import embed
    from ruler.training.classifier import train_tabular
    from ruler.unlearning import unlearn

    data = split(load_tabular("breast_cancer"))
    x, y = data.train_features, data.train_target
    part = partition_rows(len(x), _FORGET_FRACTION)
    original = train_tabular(x, y, seed=_SEED)
    models = {
        "original": original,
        "oracle": train_tabular(x, y, part, seed=_SEED),
        "unlearned": unlearn(
            _METHOD, original, forget=(x[part.forget], y[part.forget]), retain=(x[part.retain], y[part.retain])
        ),
    }
    rows = {"forget": part.forget, "retain": part.retain}
    embeddings = {f"{m}_{side}": embed(models[m], x[rows[side]]) for m in models for side in rows}
    title = f"Breast Cancer: {len(part.forget)} of {len(x)} records forgotten by Fine-Tuning"
    return embeddings, title


def _draw(metrics: dict[str, float | None], title: str) -> Table:
    table = Table("metric", "what it measures", "value", "paper's null", "how to read it", title=title)
    for name, (meaning, null, reading) in _READINGS.items():
        table.add_row(name.upper(), meaning, f"{metrics[name]:+.4f}", null, reading)
    return table


def _save(out: Path, models: "dict[str, Embeddings]", metrics: dict[str, float | None]) -> None:
    from ruler.embeddings.files import save_embeddings

    out.mkdir(parents=True, exist_ok=True)
    for name, embeddings in models.items():
        save_embeddings(embeddings, out / f"{name}.npy")
    (out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
