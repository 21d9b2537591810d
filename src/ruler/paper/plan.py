"""What the whole studies plan, and which of their cells have no row in the results."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ruler.experiment.grid import Cell, list_cells
from ruler.experiment.studies import STUDIES
from ruler.paper.diagnostics.conditions import is_of_full_size
from ruler.paper.markdown import table_lines
from ruler.paper.names import name_draw, rank_of, title_of
from ruler.paper.results import CELL, split_by

if TYPE_CHECKING:
    import pandas as pd

_MOST_NAMED = 3
_HEADER = ("Study", "Datasets", "Architectures", "Methods", "Forget fractions", "Seeds", "Cells")
_MERGED = ("dataset", "architecture", "method")
_DRAW = ("forget_choice", "forget_fraction", "forget_seed", "seed", "other_seed")
Place = tuple[Any, ...]
Group = tuple[frozenset[Any], ...]  # datasets, architectures, methods, and what each of them lacks


@dataclass(frozen=True)
class Coverage:
    """How much of a study's plan the results hold.

    Args:
        n_planned: Cells of the whole study; 0 for one that is not the paper's, or a smoke run.
        n_beyond: Rows that the plan does not have, such as those of another forget fraction.
        missing: Planned cells without a row.
    """

    n_planned: int
    n_beyond: int
    missing: tuple[Cell, ...]

    def count(self, n_rows: int) -> str:
        """Rows in words: beside the plan where that has more.

        Example:
            >>> Coverage(0, 0, ()).count(7), Coverage(2, 1, (Cell("primary", "adult", "scrub", 0.05, 0),)).count(2)
            ('7', '1 of 2, 1 beyond them')
        """
        if not self.missing:
            return str(n_rows)
        beyond = f", {self.n_beyond} beyond them" if self.n_beyond else ""
        return f"{n_rows - self.n_beyond} of {self.n_planned}{beyond}"


def compare_with_plan(study: str, runs: "pd.DataFrame") -> Coverage:
    """Which cells of the whole study have no row? Engines and precisions are not told apart.

    Args:
        study: Name of the study.
        runs: Its checked rows.

    Example:
        >>> import pandas
        >>> from ruler.paper.results import REQUIRED, check_results
        >>> nothing = check_results(pandas.DataFrame(columns=REQUIRED))
        >>> len(compare_with_plan("images", nothing).missing)
        210
    """
    if study not in STUDIES or not is_of_full_size(runs):
        return Coverage(0, 0, ())
    finished = {_drop_nan(place) for place in runs[list(CELL)].itertuples(index=False, name=None)}
    planned = list_cells(STUDIES[study])
    missing = tuple(cell for cell in planned if _identify(cell) not in finished)
    return Coverage(len(planned), len(finished) - (len(planned) - len(missing)), missing)


def list_missing(results: "pd.DataFrame") -> list[str]:
    """The part of the page that lists planned cells without a row, by study; no line where there are none.

    A study that was narrowed on purpose and one that was cut short leave the same rows, so the reason is not given.
    """
    rows = []
    for keys, runs in split_by(results, "study"):
        study = keys["study"]
        rows += [[study, *cells] for cells in _print_groups(compare_with_plan(study, runs).missing)]
    if not rows:
        return []
    lead = (
        "Planned by the whole study but not run here, because it was not asked for or not finished. Studies of which "
        "nothing was run are not listed."
    )
    return [lead, "", *table_lines(_HEADER, rows), ""]


def _identify(cell: Cell) -> Place:
    return tuple(getattr(cell, name) for name in CELL)


def _drop_nan(place: Place) -> Place:
    return tuple(None if value != value else value for value in place)


def _print_groups(cells: Sequence[Cell]) -> list[list[str]]:
    """A line for all cells that are missing in the same way."""
    counts: Counter[Group] = Counter()
    by_condition: dict[Place, list[Cell]] = {}
    for cell in cells:
        by_condition.setdefault(tuple(getattr(cell, name) for name in _MERGED), []).append(cell)
    for place, part in by_condition.items():
        draws = frozenset(tuple(getattr(cell, name) for name in _DRAW) for cell in part)
        counts[(*(frozenset([name]) for name in place), draws)] += len(part)
    for axis in reversed(range(len(_MERGED))):
        counts = _merge(counts, axis)
    return [_print_group(group, n_cells) for group, n_cells in counts.items()]


def _merge(counts: Mapping[Group, int], axis: int) -> Counter[Group]:
    """Groups that differ in one axis alone, made one."""
    alike: dict[Group, list[Group]] = {}
    for group in counts:
        alike.setdefault((*group[:axis], *group[axis + 1 :]), []).append(group)
    merged: Counter[Group] = Counter()
    for rest, groups in alike.items():
        names = frozenset[Any]().union(*(group[axis] for group in groups))
        merged[(*rest[:axis], names, *rest[axis:])] = sum(counts[group] for group in groups)
    return merged


def _print_group(group: Group, n_cells: int) -> list[str]:
    datasets, architectures, methods, draws = group
    ordered = sorted(draws, key=lambda draw: (rank_of("forget_choice", draw[0]), draw[1]))
    seeds = {seed for *_, one, other in draws for seed in (one, other) if seed is not None}
    return [
        _print_names("dataset", datasets) if len(datasets) <= _MOST_NAMED else f"{len(datasets)} datasets",
        _print_names("architecture", architectures),
        _print_names("method", methods),
        ", ".join(dict.fromkeys(name_draw(choice, fraction) for choice, fraction, *_ in ordered)),
        _print_seeds(sorted(seeds)),
        str(n_cells),
    ]


def _print_names(kind: str, names: Iterable[str]) -> str:
    return ", ".join(title_of(name) for name in sorted(names, key=lambda name: rank_of(kind, name)))


def _print_seeds(seeds: list[int]) -> str:
    is_run = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if is_run else ", ".join(map(str, seeds))
