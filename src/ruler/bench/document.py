"""`python -m ruler.bench.document BENCH.json... --out docs/performance.md`: the page of measured speeds."""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruler.core.files import write_atomically

_TITLE = """# Performance

Measured by `ruler bench --json`, written by `python -m ruler.bench.document`: measure again rather than edit
this page. Engines of one table ran in one go on one machine, each in a process of its own; compare ratios, not
seconds across machines.
"""
_SEARCH = """## Exact nearest neighbours

The nearest other row of every row (M4's leave-one-out search). RULER's answer is that of a float64 computation;
faiss and scikit-learn answer in the precision of the data. "Peaks" is the rate, as if all n^2 products were
computed, in units of this machine's float32 matrix product: half the products are saved by symmetry, and a
bfloat16 first pass is faster than float32, so it can exceed 1. Extra memory is beyond the data, at its peak.

Kinds of data: *diffuse* is Gaussian noise; *classes* ten clusters; *tight classes* ten clusters of spread
0.001; *collapsed* one cluster of spread 0.0001; *duplicates* every row ten times on average; *rectified* what a
ReLU layer makes of 20 factors. The tighter the data, the less low precision can tell apart, and the first pass
moves up to float32 or float64 by itself.
"""
_CUDA = """## On a GPU

The rows lie on the device. TFLOP/s count the products that are really computed, half of them in RULER's case, and
"of peak" is that rate in units of the device's bfloat16 matrix product (8192 x 8192 x 8192, torch) in the same run.
The first pass names the pairs that float64 must look at; "over first pass" is what loading, checking, rounding and
looking at them again cost on top. The rivals do what faiss does on a GPU, products of a chunk of queries and then its
top 2, which is not exact; they were timed on the first eight chunks of 4,096 queries.
"""
_PROTOCOL = """## The paper's protocol

Two seeds of a dataset: an original and three oracles each, four methods at three fractions, from training to
metrics. "Plain" is the protocol in the fewest lines of torch, one model after the other; RULER runs the same
steps, with the same weights to the last bit, in one process a core.
"""


def write_document(benches: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the page from the numbers of one or more machines."""
    parts = [_TITLE]
    for bench in benches:
        machine = ", ".join(f"{key} {value}" for key, value in bench["machine"].items())
        on_cuda = [row for row in bench.get("search", ()) if "CUDA" in row["kind"]]
        on_cpu = [row for row in bench.get("search", ()) if "CUDA" not in row["kind"]]
        for text, rows, table in ((_SEARCH, on_cpu, _search_table), (_CUDA, on_cuda, _cuda_table)):
            if rows:
                parts += [text, f"Machine: {machine}.", table(rows)]
        if bench.get("protocol"):
            parts += [_PROTOCOL, f"Machine: {machine}.", _protocol_table(bench["protocol"])]
        parts += [f"{note}\n" for note in bench.get("notes", ())]
    write_atomically(path, "\n".join(parts).encode())


def _search_table(rows: Iterable[Mapping[str, Any]]) -> str:
    header = ("data", "rows", "width", "engine", "seconds", "RULER is faster by", "extra MB", "peaks")
    return _table(
        header,
        [
            (
                row["kind"],
                f"{row['n_rows']:,}",
                str(row["width"]),
                row["engine"],
                f"{row['elapsed_s']:.2f}",
                f"{row['speedup']:.2f}x",
                f"{row['extra_mb']:.0f}",
                f"{row['sgemm_share']:.2f}",
            )
            for row in rows
        ],
    )


def _cuda_table(rows: Iterable[Mapping[str, Any]]) -> str:
    header = ("rows", "width", "engine", "seconds", "TFLOP/s", "of peak", "over first pass", "RULER is faster by", "MB")
    return _table(
        header,
        [
            (
                f"{row['n_rows']:,}",
                str(row["width"]),
                row["engine"],
                f"{row['elapsed_s']:.2f}",
                f"{row['tflops']:.0f}",
                f"{row['peak_share']:.2f}",
                f"{row['over_first_pass']:.2f}x" if row["over_first_pass"] else "",
                f"{row['speedup']:.2f}x",
                f"{row['extra_mb']:.0f}",
            )
            for row in rows
        ],
    )


def _protocol_table(rows: Iterable[Mapping[str, Any]]) -> str:
    header = ("dataset", "plain seconds", "RULER seconds", "RULER is faster by")
    cells = [(r["dataset"], f"{r['plain_s']:.1f}", f"{r['ruler_s']:.1f}", f"{r['speedup']:.1f}x") for r in rows]
    return _table(header, cells)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    """Read the benches and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="+", type=Path, help="files of `ruler bench --json`")
    parser.add_argument("--out", type=Path, default=Path("docs/performance.md"), help="page to write")
    chosen = parser.parse_args()
    write_document([json.loads(path.read_text(encoding="utf-8")) for path in chosen.benches], chosen.out)


if __name__ == "__main__":
    main()
