"""Pick numbers and runs out of tables."""

from ruler.paper.results import check_results
from ruler.paper.tables import TABLES
from ruler.paper.tables.numbers import KEYS, as_frame


def compute(results, *tables):
    checked = check_results(results)
    return {name: as_frame(TABLES[name].compute(checked)) for name in tables}


def value(numbers, table, column, **keys):
    frame = numbers[table]
    mask = frame.column == column
    for key, wanted in keys.items():
        mask &= frame[key] == wanted
    [found] = frame[mask].value
    return found


def runs(results, study="primary", **keys):
    mask = results.study == study
    for key, wanted in keys.items():
        mask &= results[key] == wanted
    return results[mask]


def identities(frame):
    rows = frame[["column", *KEYS]].itertuples(index=False)
    return {tuple(None if cell != cell else cell for cell in row) for row in rows}
