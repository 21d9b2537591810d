"""Are all numbers of two versions of this package the same, to the bit?

    python tools/same_numbers.py collect OUT.json     # numbers of the version on PYTHONPATH, by public doors only
    python tools/same_numbers.py compare A.json B.json

Collected: M1 to M4, neighbours, embeddings and losses, all unlearning methods, twelve audits with every number of their
reports, cells of three small studies (both engines), and all tables of the recorded results. Run `collect` once in each
version, with the same installed packages and RULER_DATA set.
"""

import argparse
import hashlib
import json
import math
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
UNSTABLE = {"elapsed_s", "created", "created_at", "versions", "version", "provenance", "environment", "reason", "needs"}
"""Keys of a report that say when, with what and in which words, rather than what was measured."""


def main() -> None:
    """Collect or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["collect", "compare"])
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    if options.action == "collect":
        found = {name: make() for name, make in PARTS.items()}
        options.files[0].write_text(json.dumps(found, indent=1, sort_keys=True))
        print({name: len(list(_flatten(value))) for name, value in found.items()})
        return
    first, second = (dict(_flatten(json.loads(path.read_text()))) for path in options.files)
    shared = first.keys() & second.keys()
    differing = sorted(key for key in shared if first[key] != second[key])
    for key in differing[:40]:
        print(f"{key}: {first[key]} != {second[key]}")
    for name, only in (("first", first.keys() - second.keys()), ("second", second.keys() - first.keys())):
        print(f"only in the {name}: {len(only)} {sorted(only)[:10]}")
    print(f"{len(shared)} numbers in both, {len(differing)} differ")
    sys.exit(1 if differing or first.keys() - second.keys() else 0)


def collect_metrics() -> dict[str, Any]:
    """The paper's numbers of random rows, and neighbours."""
    import ruler

    rng = np.random.default_rng(0)
    sides = [rng.normal(size=(n, 24)) for n in (40, 300, 40, 300, 40)]
    found: dict[str, Any] = {"all": ruler.all_metrics(*sides)}
    found["cosine"] = _digest(ruler.cosine_similarity(sides[0], sides[2]))
    for k in (1, 5):
        for exclude in (False, True):
            near = ruler.find_neighbors(sides[1], sides[1], k=k, exclude_self=exclude)
            found[f"neighbours {k} {exclude}"] = [_digest(near.similarity), _digest(near.index)]
    big = np.maximum(rng.normal(size=(6000, 64)).astype(np.float32), 0)
    near = ruler.find_neighbors(big, big, k=3, exclude_self=True)
    found["neighbours big"] = [_digest(near.similarity), _digest(near.index)]
    return found


def collect_models() -> dict[str, Any]:
    """Embeddings and losses of a small classifier, and what every method makes of it."""
    import torch

    import ruler
    from ruler.unlearning import METHODS

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    rows = torch.randn(200, 8)
    data = torch.utils.data.TensorDataset(rows, torch.randint(0, 3, (200,)))
    found: dict[str, Any] = {}
    for layer, one in ruler.embed(model, data, layer="all").items():
        found[f"layer {layer}"] = [_digest(np.asarray(one.values)), _digest(np.asarray(one.losses))]
    forget, retain = (torch.utils.data.Subset(data, part) for part in (range(40), range(40, 200)))
    for name in METHODS:
        try:
            unlearned = ruler.unlearn(name, model, forget=forget, retain=retain)
        except Exception as error:  # a method for other models or other sizes
            found[f"method {name}"] = str(error)
            continue
        weights = unlearned.state_dict()
        found[f"method {name}"] = [_digest(weights[key].numpy()) for key in sorted(weights)]
    return found


def collect_audits() -> dict[str, Any]:
    """Every number of twelve reports and of their records."""
    import ruler
    from ruler import AuditSettings, Embeddings

    rng = np.random.default_rng(1)
    n, r, m, p = 120, 500, 240, 16
    base = {side: rng.normal(size=(size, p)) + 1 for side, size in (("forget", n), ("retain", r), ("held_out", m))}
    labels = {side: (rows[:, 0] > 1).astype(int) for side, rows in base.items()}

    def make(seed: int, mark: float = 0.0, has_losses: bool = True, grouped: bool = False) -> tuple[Any, ...]:
        own = np.random.default_rng(seed)
        sides = []
        for side, rows in base.items():
            moved = rows + 0.3 * own.normal(size=rows.shape) + (mark if side == "forget" else 0.0) * (rows > 1)
            losses = own.exponential(size=len(rows)) * (1 - 0.6 * min(mark, 1.0) * (side == "forget"))
            sides.append(
                Embeddings(
                    moved,
                    labels=labels[side],
                    losses=losses if has_losses else None,
                    groups=np.array([f"{side} {i // 4}" for i in range(len(rows))]) if grouped else None,
                )
            )
        return tuple(sides)

    oracles = [make(seed) for seed in range(10, 16)]
    cases: dict[str, dict[str, Any]] = {
        "clean": {"unlearned": make(2), "oracle": oracles[0], "original": make(3, 1.0)},
        "residual": {"unlearned": make(2, 0.8), "oracle": oracles[0], "original": make(3, 1.0)},
        "no original": {"unlearned": make(2), "oracle": oracles[0]},
        "no oracle": {"unlearned": make(2, 0.4), "original": make(3, 1.0)},
        "no losses": {
            "unlearned": make(2, has_losses=False),
            "oracle": make(10, has_losses=False),
            "original": make(3, 1.0, has_losses=False),
        },
        "no held-out": {"unlearned": make(2)[:2], "oracle": oracles[0][:2]},
        "two oracles": {"unlearned": make(2), "oracle": oracles[:2], "original": make(3, 1.0)},
        "six oracles": {"unlearned": make(2, 0.3), "oracle": oracles, "original": make(3, 1.0)},
        "groups": {
            "unlearned": make(2, grouped=True),
            "oracle": make(10, grouped=True),
            "original": make(3, 1.0, grouped=True),
        },
        "matched": {
            "unlearned": make(2),
            "oracle": oracles[0],
            "original": make(3, 1.0),
            "settings": AuditSettings(match_labels=True),
        },
        "other settings": {
            "unlearned": make(2),
            "oracle": oracles[0],
            "original": make(3, 1.0),
            "settings": AuditSettings(alpha=0.01, limit=0.1, n_permutations=500, seed=7),
        },
        "arrays": {"unlearned": tuple(base.values()), "oracle": tuple(rows + 0.1 for rows in base.values())},
    }
    found = {}
    for name, given in cases.items():
        report = ruler.audit(**given)
        records = report.records
        found[name] = {
            "report": _strip(report.to_dict()),
            "records": {str(column): _digest(records[column].to_numpy()) for column in records.columns},
        }
    return found


def collect_studies() -> dict[str, Any]:
    """Scores of the cells of small studies, as the store holds them."""
    found: dict[str, Any] = {}
    commands = {
        "primary protocol": ["primary", "--datasets", "breast_cancer", "--seeds", "1", "--engine", "protocol"],
        "primary ensemble": ["primary", "--datasets", "breast_cancer", "--seeds", "1", "--engine", "ensemble"],
        "images smoke": ["images", "--smoke", "--seeds", "1", "--datasets", "cifar10"],
    }
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as folder:
            run = [sys.executable, "-m", "ruler", "reproduce", *command, "--jobs", "1", "--out", folder]
            subprocess.run(run, check=True, capture_output=True)
            store = sqlite3.connect(f"{folder}/results.sqlite")
            tables = [row[0] for row in store.execute("select name from sqlite_master where type = 'table'")]
            for table in sorted(tables):
                cursor = store.execute(f'select * from "{table}"')
                columns = [column[0] for column in cursor.description]
                rows = sorted(json.dumps(_strip_row(columns, row), default=repr) for row in cursor.fetchall())
                found[f"{name} {table}"] = rows
            found[f"{name} tables"] = _digest_folder(Path(folder), "tables/*.csv", "comparison.csv")
    return found


def collect_paper() -> dict[str, Any]:
    """All tables of the recorded results."""
    with tempfile.TemporaryDirectory() as folder:
        results = str(ROOT / "docs" / "results.parquet")
        subprocess.run([sys.executable, "-m", "ruler.paper", results, "--out", folder], check=True, capture_output=True)
        return _digest_folder(Path(folder), "tables/*.csv", "comparison.csv")


PARTS = {
    "metrics": collect_metrics,
    "models": collect_models,
    "audits": collect_audits,
    "studies": collect_studies,
    "paper": collect_paper,
}


def _digest(array: Any) -> str:
    values = np.asarray(array)
    raw = "\n".join(map(repr, values.tolist())).encode() if values.dtype == object else values.tobytes()
    return f"{values.dtype} {values.shape} {hashlib.sha256(raw).hexdigest()[:16]}"


def _digest_folder(folder: Path, *patterns: str) -> dict[str, str]:
    paths = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}


def _strip(value: Any) -> Any:
    """Numbers of a report without words, times and versions."""
    if isinstance(value, dict):
        return {str(key): _strip(one) for key, one in value.items() if key not in UNSTABLE}
    if isinstance(value, list | tuple):
        return [_strip(one) for one in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(value).hex()
    return value if isinstance(value, str | int | bool | None) else str(value)


def _strip_row(columns: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return {
        name: value
        for name, value in zip(columns, row, strict=True)
        if not any(word in name for word in ("second", "elapsed", "finished", "commit"))
    }


def _flatten(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flatten(one, f"{name}/{key}")
    elif isinstance(value, list):
        for position, one in enumerate(value):
            yield from _flatten(one, f"{name}/{position}")
    else:
        yield name, value


if __name__ == "__main__":
    main()
