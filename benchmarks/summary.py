"""The table at the head of the page of speeds: a line per work that people come for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

Row = Mapping[str, Any]
HEAD = ("work", "before", "RULER", "rival", "RULER is faster by", "limit", "memory")


def sum_up(found: Mapping[str, Sequence[Row]], before: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """The cells of every line.

    Args:
        found: What was measured, by kind of measurement.
        before: By kind and name of a line, what the same work took when the table was begun.
    """
    for key, list_lines in _LINES.items():
        for name, work, *cells in list_lines(found.get(key, [])):
            yield work, before.get(f"{key} {name}", ""), *cells


def _sum_up_kinds(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for n_rows in sorted({row["n_rows"] for row in rows}):
        some = [row for row in rows if row["n_rows"] == n_rows]
        work = f"nearest other rows, {n_rows:,} x {some[0]['width']}, {len(some)} kinds of rows, one thread"
        times, limits = ([row[name] for row in some] for name in ("ruler_s", "limit_s"))
        ratios = _range([row["faiss_s"] / row["ruler_s"] for row in some], "x")
        memory = f"at most {max(row['extra_mb'] for row in some):.0f} MB"
        yield str(n_rows), work, _range(times, "s"), "faiss, not exact", ratios, _range(limits, "s"), memory


def _sum_up_cuda_kinds(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for size in sorted({(row["n_rows"], row["width"]) for row in rows}):
        some = [row for row in rows if (row["n_rows"], row["width"]) == size]
        work = f"the same, {size[0]:,} x {size[1]}, {len(some)} kinds of rows, H200"
        slower = f"at most {max(row['over_rectified'] for row in some):.1f}x slower"
        memory = f"at most {max(row['extra_mb'] for row in some):.0f} MB"
        times = _range([row["elapsed_s"] for row in some], "s")
        yield f"{size[0]} {size[1]}", work, times, "rectified rows", slower, "", memory


def _sum_up_cuda_search(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for ours in (row for row in rows if row["engine"] == "ruler"):
        alike = [row for row in rows if (row["n_rows"], row["width"]) == (ours["n_rows"], ours["width"])]
        rivals = {row["elapsed_s"]: row["engine"] for row in alike if row["engine"].startswith("torch")}
        rival_s = min(rivals, default=float("nan"))
        name = f"{ours['n_rows']} {ours['width']}"
        work = f"the same, {ours['n_rows']:,} x {ours['width']}, diffuse rows, H200"
        beside = f"{rivals.get(rival_s, 'none')}, {rival_s:.2f} s", f"{rival_s / ours['elapsed_s']:.1f}x"
        limit = f"{ours['elapsed_s'] * ours['peak_share']:.2f} s"
        yield name, work, f"{ours['elapsed_s']:.2f} s", *beside, limit, f"{ours['extra_mb']:.0f} MB"


def _sum_up_pipelines(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        work = f"{row['study']}, data to tables, {row['engine']}, {row['cores']} cores"
        beside = f"plain torch, {row['plain_s']:.0f} s", f"{row['speedup']:.2f}x"
        yield row["engine"], work, f"{row['ruler_s']:.0f} s", *beside, "", f"{row['ruler_mb']:.0f} MB"


def _sum_up_audits(rows: Sequence[Row], place: str) -> Iterator[tuple[str, ...]]:
    for row in rows:
        case = row["case"]
        work = f"audit of {case['n_rows']:,} x {case['width']}, files to report, {place}"
        memory = f"{row['peak_mb'] / 1024:.1f} GB"
        yield f"{case['n_rows']} {case['width']}", work, f"{row['elapsed_s']:.0f} s", "", "", "", memory


def _sum_up_embedding(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        ratio, memory = f"{row['rival_s'] / row['ruler_s']:.2f}x", f"{row['ruler_mb']:.0f} MB"
        beside = f"{row['rival']}, {row['rival_s']:.1f} s", ratio
        yield f"{row['work']}, {row['rival']}", row["work"], f"{row['ruler_s']:.1f} s", *beside, "", memory


_LINES: dict[str, Callable[[Sequence[Row]], Iterator[tuple[str, ...]]]] = {
    "kinds": _sum_up_kinds,
    "cuda_kinds": _sum_up_cuda_kinds,
    "search on cuda": _sum_up_cuda_search,
    "pipelines": _sum_up_pipelines,
    "audits": partial(_sum_up_audits, place="two cores"),
    "audits on cuda": partial(_sum_up_audits, place="search on an H200"),
    "audits on ray": partial(_sum_up_audits, place="Ray with two workers"),
    "embedding": _sum_up_embedding,
}


def _range(values: Sequence[float], unit: str) -> str:
    """The smallest and the largest.

    Example:
        >>> _range([0.5, 0.25, 2], "s")
        '0.25 to 2.00 s'
    """
    gap = "" if unit == "x" else " "
    return f"{min(values):.2f} to {max(values):.2f}{gap}{unit}"
