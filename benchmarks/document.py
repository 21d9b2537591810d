"""`python -m benchmarks document docs/bench/*.json --out docs`: the pages of measured speeds and of precisions."""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.summary import HEAD, Row, sum_up
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table

_TITLE = """# Performance

`make bench ARGS="--json FILE"` measures, and `python -m benchmarks document docs/bench/*.json` writes this page:
measure again rather than edit it. All engines of one table ran in one go on one machine, each in its own process.
Compare ratios, not seconds across machines. What bfloat16 changes is on [a page of its own](precision.md).
"""
_SHORT = """## In short

Rivals ran in the same run as RULER. "Before" is the same work when this table was begun: ratios compare, seconds are of
other machines. The limit of a search is half of all products in bfloat16 and nothing else, at the rate that the machine
reached in the same run. Memory is beyond the data for searches, of the whole process for audits (with the pages of the
files that it maps), of the largest process for studies, and of the GPU for embedding.
"""
_SEARCH = """## Exact nearest neighbours

The search finds the nearest other row of every row (M4's leave-one-out search). RULER's answer is that of a float64
computation; faiss and scikit-learn answer in the precision of the data.

- **Peaks**: the rate as if all n^2 products were computed, in units of this machine's float32 matrix product. Symmetry
  saves half of the products, and a bfloat16 first pass is faster than float32, so the rate can exceed 1.
- **Extra MB**: memory beyond the data, at its peak.

| data | what it is |
| --- | --- |
| *diffuse* | Gaussian noise |
| *classes* | ten clusters |
| *tight classes* | ten clusters of spread 0.001 |
| *collapsed* | one cluster of spread 0.0001 |
| *duplicates* | every row ten times on average |
| *rectified* | what a ReLU layer makes of 20 factors |
| *heavy-tailed* | Cauchy noise |
| *rank 2*, *rank 8* | few factors |
| *int8*, *bfloat16* | classes rounded to integers and to 8 bits |
| *identities* | twenty rows of spread 0.01 around each of many close means |
| *offset* | 20 factors around a common mean, as rows of a transformer lie |

The tighter the data, the fewer rows low precision can tell apart. RULER then lays rows out by cluster and stores them
relative to its centre, or moves the first pass up to float32 or float64, by itself.
"""
_KINDS = """## Every kind of rows

The same search in processor time of one thread. faiss and RULER run in turns in one process, so that the ratios hold on
a busy machine too. "Rows as they stand" is RULER without its layout by cluster. "Limit" is half of all products in
bfloat16 and nothing else, which clusters can undercut. "Exact" says whether all indices and similarities equal those of
a float64 search, to the bit.
"""
_AUDITS = """## An audit from files to report

An unlearned, an oracle and an original model as `.npy` files, from opening them to the saved report, with 2,000
permutations to begin with. Times by stage are processor seconds of all threads; the search uses both cores, so the
clock shows less. Peak memory is that of the whole process, including mapped pages of the files.

![Processor time of each stage against the number of records](images/audit_stages.png)
"""
_AUDITS_ON_CUDA = """## An audit from files to report, on a GPU

As above, with the search on the GPU. Times by stage are seconds on the clock, without the start of Python. Four to six
seconds of each search are the start of torch, of CUDA and of the kernels: a second search in the same process of a
million records took 0.4 s. Kernels that a machine has never run are compiled first, about three seconds once.

![Time of each stage against the number of records, with a GPU](images/audit_stages_gpu.png)
"""
_AUDITS_ON_RAY = """## An audit from files to report, on Ray

As above, with the search by the workers of a Ray cluster that is started on the same machine, here two workers of one
core. Times by stage are seconds on the clock; the start of the cluster is not among them.
"""
_EMBEDDING = """## Embedding

`ruler.embed` beside a plain loop of torch, both with models and records of random numbers in one run
(`python -m benchmarks embedding`). Images lie in memory as one tensor, texts as token lists of 20 to 256 tokens, evenly
spread. The plain loops take batches of 256 in the order of the records, pad a batch of texts to its longest, and copy
what a hook reads to the host. RULER sorts texts by length, places the next batch on the GPU while it computes, and
turns convolutions of small maps into products. It never rounds products to fewer bits by itself, while torch by default
rounds the inputs of convolutions on a GPU to ten bits (TF32): to trade precision for speed, embed under
`torch.autocast`, as the row in bfloat16 does. "Apart" is the largest difference between the rows of both, in units of
the largest number. Memory is of the GPU, beyond model and records.
"""
_CUDA = """## On a GPU

The rows lie on the device. TFLOP/s count the products that are really computed, half of them in RULER's case. "Of
peak" is that rate in units of the device's bfloat16 matrix product (8192 x 8192 x 8192, torch) in the same run. The
first pass names the pairs that float64 must recheck; "over first pass" is the total time over that of the first pass:
loading, checking, rounding and the recheck come on top. The rivals do what faiss does on a GPU, products of a chunk of
queries and then its top 2, which is not exact; they were timed on the first eight chunks of 4,096 queries.
"""
_CUDA_KINDS = """## Kinds of rows on a GPU

The nearest other row of every row, with the rows on the device. Times are also given in units of the time on
rectified rows of the same size. "Exact" says whether all indices and similarities equal those of a search whose first
pass is in float64 too, to the bit.
"""
_PROTOCOL = """## The paper's protocol

Two seeds of a dataset: an original and three oracles each, four methods at three fractions, from the first import to
metrics. "Plain" is the protocol in the fewest lines of torch, one model after the other. The engine `protocol` runs
the same steps, with the same weights to the last bit; `ensemble` draws other dropout masks. Each ran on one thread in
processes of its own, by turns: seconds are processor time, which other work on the same cores disturbs less than the
clock, ratios are of medians with the range over turns, and memory is the peak of one process.
"""
_PIPELINES = """## The paper's protocol from data to tables

`ruler reproduce primary` on two datasets and four seeds, from its first import to its last table and figure, with no
model in the cache. "Plain" computes the same scores of the same models, and ends with a table of means: one model after
the other in one process, each trained once and read once, a teacher asked once, and similarities as products of whole
matrices in float32. On several cores it has as many threads, which sleep while they wait, and RULER as many processes.
All ran by turns (`python -m benchmarks protocol --whole --cores N`); ratios are of medians, that of the clock with its
range over turns. Other work ran on the same cores, which disturbs the clock more than the processor time of all
processes and threads.
"""
_STUDIES = """## Whole studies

`ruler reproduce STUDY` as a user runs it, from its first import to its last table, with no model in the cache: in one
process per core, or in up to eight on a GPU.
"""
_SHARDS = """## More rows than one would load

Time and peak memory of an audit of retain records in shards, with as many held-out as forget records, in its own
process. The memory includes mapped pages of the shards. The rows are identities within classes, as an embedding of
faces has them.
"""
_PRECISION = """# Mixed precision

Cells of the diagnostic studies were trained and unlearned twice: by `python -m benchmarks precision` in turns or, where
verdicts are given, as studies of their own that were compared afterwards (`--results`). Seeds, records, batches
and all settings are the same. Only the products of training and unlearning are in float32 or in bfloat16 (autocast);
weights, optimiser, losses and the reading of representations stay in float32. On a GPU, convolutions of float32
training are in TF32, torch's default.

- **Difference**: the mean over seeds in bfloat16 minus that in float32, with Welch's 95% interval.
- **Seed SD**: the standard deviation over seeds in float32, so what another seed does. Seeds of text share one model
  that was trained before them in each precision, so their spread understates what varies.
- **M4 reads** as in the findings: near 0.50 (within 0.03), above or below, far above or far below (beyond 0.10). Where
  two readings or two counts of verdicts differ, that of float32 comes first.
- **Verdicts** come from the release before the scale, which compared an AUC with a margin.
- **Faster by**: by the time of the quickest seed, metrics included. The time of the original includes the training of
  original and oracle.

| conclusion | M4 reads the same in both | the intervals of M4 and M2 |
| --- | --- | --- |
| *same* | yes | both cover 0 |
| *same, shifted* | yes | at least one leaves 0 out (up to one in twenty does so by chance) |
| *not told apart* | no | that of M4 covers 0, so other seeds could change the reading too |
| *changed* | no | that of M4 leaves 0 out |

Few seeds make wide intervals: look at the differences themselves too.
"""


_EXACT = {True: "yes", False: "NO", None: ""}

Columns = Mapping[str, str | Callable[[Row], str]]
"""Heading -> what stands below it: a format of the row's numbers, or a function of the row."""

SEARCH: Columns = {
    "data": "{kind}",
    "rows": "{n_rows:,}",
    "width": "{width}",
    "engine": "{engine}",
    "seconds": "{elapsed_s:.2f}",
    "RULER is faster by": "{speedup:.2f}x",
    "extra MB": "{extra_mb:.0f}",
    "peaks": "{sgemm_share:.2f}",
}
_ON_CUDA: Columns = {
    "rows": "{n_rows:,}",
    "width": "{width}",
    "engine": "{engine}",
    "seconds": "{elapsed_s:.2f}",
    "TFLOP/s": "{tflops:.0f}",
    "of peak": "{peak_share:.2f}",
    "over first pass": lambda row: f"{row['over_first_pass']:.2f}x" if row["over_first_pass"] else "",
    "RULER is faster by": "{speedup:.2f}x",
    "MB": "{extra_mb:.0f}",
}
PROTOCOL: Columns = {
    "dataset": "{dataset}",
    "engine": "{engine}",
    "plain s": "{plain_s:.1f}",
    "RULER s": "{ruler_s:.1f}",
    "RULER is faster by": "{speedup:.2f}x ({lowest:.2f} to {highest:.2f})",
    "plain MB": "{plain_mb:.0f}",
    "RULER MB": "{ruler_mb:.0f}",
}
_OF_PIPELINES: Columns = {
    "study": "{study}",
    "engine": "{engine}",
    "cores": "{cores}",
    "plain processor s": "{plain_cpu_s:.1f}",
    "RULER processor s": "{ruler_cpu_s:.1f}",
    "less by": "{cpu_speedup:.2f}x",
    "plain on the clock s": "{plain_s:.0f}",
    "RULER on the clock s": "{ruler_s:.0f}",
    "RULER is faster by": "{speedup:.2f}x ({lowest:.2f} to {highest:.2f})",
    "plain MB": "{plain_mb:.0f}",
    "RULER MB, largest process": "{ruler_mb:.0f}",
}
_OF_KINDS: Columns = {
    "data": "{kind}",
    "rows": "{n_rows:,}",
    "RULER s": "{ruler_s:.2f}",
    "rows as they stand s": "{plain_s:.2f}",
    "faiss s": "{faiss_s:.2f}",
    "limit s": "{limit_s:.2f}",
    "faster than faiss by": lambda row: f"{row['faiss_s'] / row['ruler_s']:.2f}x",
    "extra MB": "{extra_mb:.0f}",
    "exact": lambda row: _EXACT[row["is_exact"]],
}
_OF_CUDA_KINDS: Columns = {
    "data": "{kind}",
    "rows": "{n_rows:,}",
    "width": "{width}",
    "seconds": "{elapsed_s:.3f}",
    "over rectified rows": "{over_rectified:.1f}x",
    "MB": "{extra_mb:.0f}",
    "exact": lambda row: _EXACT[row["is_exact"]],
}
_OF_AUDITS: Columns = {
    "records": "{case[n_rows]:,}",
    "width": "{case[width]}",
    "forget": "{case[n_side]:,}",
    "M4 ranks among": lambda row: _name_reference(row["case"]),
    **{f"{stage} s": f"{{stages_s[{stage}]:.1f}}" for stage in ("read", "search", "statistics", "save")},
    "together s": lambda row: f"{sum(row['stages_s'].values()):.1f}",
    "on the clock s": "{elapsed_s:.1f}",
    "peak GB": lambda row: f"{row['peak_mb'] / 1024:.2f}",
}
_OF_EMBEDDING: Columns = {
    "work": "{work}",
    "rival": "{rival}",
    "rival s": "{rival_s:.2f}",
    "RULER s": "{ruler_s:.2f}",
    "RULER is faster by": lambda row: f"{row['rival_s'] / row['ruler_s']:.2f}x",
    "rival MB": "{rival_mb:.0f}",
    "RULER MB": "{ruler_mb:.0f}",
    "apart": "{apart:.0e}",
}
_OF_SHARDS: Columns = {
    "retain records": "{n_rows:,}",
    "width": "{width}",
    "forget records": "{n_side:,}",
    "M4 ranks among": lambda row: _name_reference(row),
    "took": lambda row: f"{row['elapsed_s'] / 60:.1f} min",
    "peak GB": lambda row: f"{row['peak_mb'] / 1024:.2f}",
}
_OF_STUDIES: Columns = {"study": "{study}", "device": "{device}", "cells": "{n_cells:,}", "seconds": "{elapsed_s:.0f}"}
_SECTIONS: dict[str, tuple[str, Columns]] = {
    "search": (_SEARCH, SEARCH),
    "search on cuda": (_CUDA, _ON_CUDA),
    "protocol": (_PROTOCOL, PROTOCOL),
    "pipelines": (_PIPELINES, _OF_PIPELINES),
    "kinds": (_KINDS, _OF_KINDS),
    "cuda_kinds": (_CUDA_KINDS, _OF_CUDA_KINDS),
    "audits": (_AUDITS, _OF_AUDITS),
    "audits on cuda": (_AUDITS_ON_CUDA, _OF_AUDITS),
    "audits on ray": (_AUDITS_ON_RAY, _OF_AUDITS),
    "embedding": (_EMBEDDING, _OF_EMBEDDING),
    "shards": (_SHARDS, _OF_SHARDS),
    "studies": (_STUDIES, _OF_STUDIES),
}
"""Key of the numbers -> text and table, in the order of the page."""


def write_document(benches: Sequence[Row], folder: Path) -> None:
    """Write performance.md and, if precisions were compared, precision.md from the numbers of one or more machines."""
    precisions = [bench for bench in benches if bench.get("precision")]
    parts = []
    for bench in (bench for bench in benches if bench not in precisions and "machine" in bench):
        numbers = _split_devices(bench)
        for key, (text, columns) in _SECTIONS.items():
            if numbers.get(key):
                parts += [text, f"Machine: {_name_machine(bench)}.", _table(columns, numbers[key])]
        parts += [f"{note}\n" for note in bench.get("notes", ())]
    short = markdown_table(HEAD, _sum_up(benches))
    pages = {"performance.md": [_TITLE, _SHORT, *short, "", *parts]}
    if precisions:
        pages["precision.md"] = _describe_precisions(precisions)
    for name, page in pages.items():
        write_atomically(folder / name, "\n".join(page).encode())


def _split_devices(bench: Row) -> Row:
    """The numbers of a machine, those of its GPU under keys of their own, and whole studies added up."""
    numbers = dict(bench)
    for key in ("search", "audits"):
        for name, devices in ((key, "cpu"), (f"{key} on cuda", "cuda"), (f"{key} on ray", "ray")):
            numbers[name] = [row for row in bench.get(key, ()) if _device_of(row) == devices]
    if len(studies := bench.get("studies", ())) > 1:
        whole = {name: sum(row[name] for row in studies) for name in ("n_cells", "elapsed_s")}
        numbers["studies"] = [*studies, {"study": "together", "device": ""} | whole]
    return numbers


def _device_of(row: Row) -> str:
    return str(row.get("device", "cuda" if "CUDA" in row.get("kind", "") else "cpu"))


def _sum_up(benches: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """The cells of the rows that most people come for, of what was measured."""
    found: dict[str, list[Row]] = {}
    before: dict[str, str] = {}
    for bench in benches:
        before |= bench.get("before", {})
        for key, rows in _split_devices(bench).items():
            found[key] = found.get(key, []) + (rows if isinstance(rows, list) else [])
    return sum_up(found, before)


def list_cells(columns: Columns, row: Row) -> list[str]:
    """The cells of a row.

    Example:
        >>> list_cells({"rows": "{n_rows:,}", "half": lambda row: str(row["n_rows"] // 2)}, {"n_rows": 5000})
        ['5,000', '2500']
    """
    return [cell.format_map(row) if isinstance(cell, str) else cell(row) for cell in columns.values()]


def _table(columns: Columns, rows: Iterable[Row]) -> str:
    return "\n".join(["", *markdown_table(tuple(columns), (list_cells(columns, row) for row in rows)), ""])


def _name_machine(bench: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in bench["machine"].items())


def _name_reference(row: Row) -> str:
    return "all" if row["n_reference"] is None else f"{row['n_reference']:,}"


def _describe_precisions(benches: Sequence[Row]) -> list[str]:
    """The page of precisions: a section per machine that compared them."""
    parts = [_PRECISION]
    for bench in benches:
        rows = bench["precision"]
        parts += [f"Machine: {_name_machine(bench)}.", _precision_table(rows), f"{_sum_up_precisions(rows)}\n"]
        parts += [
            f"Failed: {row['dataset']}, {row['architecture']}, {row['method']}, {e}\n"
            for row in rows
            for e in row["errors"]
        ]
        parts += [f"{note}\n" for note in bench.get("notes", ())]
    return parts


def _sum_up_precisions(rows: Sequence[Row]) -> str:
    done = [row for row in rows if row["conclusion"] != "not measured"]
    shifts = [row[name] for row in done for name in ("m4", "m2") if row[name]]
    n_apart = sum(not shift["low"] <= 0 <= shift["high"] for shift in shifts)
    n_alike = sum(row["readings"][0] == row["readings"][1] for row in done)
    m4, accuracy = (
        max((abs(row[name]["difference"]) for row in done), default=0.0) for name in ("m4", "test_accuracy")
    )
    return (
        f"M4 reads the same in {n_alike} of {len(rows)} rows; {n_apart} of {len(shifts)} intervals leave 0 out. The "
        f"largest difference is {m4:.3f} in M4 and {accuracy:.3f} in test accuracy."
    )


def _precision_table(rows: Iterable[Row]) -> str:
    header = (
        *("dataset", "model", "forget", "method", "seeds"),
        *("M4 float32", "M4 bfloat16", "difference", "seed SD", "M4 reads"),
        *("M2 float32", "M2 bfloat16", "difference", "seed SD"),
        *("test accuracy", "verdicts", "faster by", "conclusion"),
    )
    cells = [
        (
            *(row["dataset"], row["architecture"], _name_forget(row), row["method"], str(row["n_seeds"])),
            *_shift_cells(row["m4"], 3),
            " / ".join(dict.fromkeys(row["readings"])),
            *(_shift_cells(row["m2"], 4) if row["m2"] else ("",) * 4),
            " / ".join(f"{value:.3f}" for value in row["test_accuracy"]["means"]),
            " / ".join(dict.fromkeys(row["verdicts"])),
            f"{row['speedup']:.2f}x" if row["speedup"] else "",
            row["conclusion"],
        )
        for row in rows
    ]
    return "\n".join(["", *markdown_table(header, cells), ""])


def _name_forget(row: Row) -> str:
    return f"{row['forget_fraction']:.0%}" if row["forget_choice"] == "random" else row["forget_choice"]


def _shift_cells(shift: Row, n_digits: int) -> tuple[str, ...]:
    single, half = (f"{value:.{n_digits}f}" for value in shift["means"])
    interval = f"[{shift['low']:+.{n_digits}f}, {shift['high']:+.{n_digits}f}]"
    return single, half, f"{shift['difference']:+.{n_digits}f} {interval}", f"{shift['seed_sd']:.{n_digits}f}"


def main() -> None:
    """Read the benches and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benches", nargs="+", type=Path, help="files that `make bench` wrote")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the pages")
    chosen = parser.parse_args()
    write_document([json.loads(path.read_text(encoding="utf-8")) for path in chosen.benches], chosen.out)
