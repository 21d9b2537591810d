"""`ruler verify --rerun`: the audit again, from its inputs, compared with the saved report to the bit."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruler.auditing.report.document import write_document
from ruler.auditing.report.files import load_report, write_records
from ruler.auditing.request import repeat
from ruler.auditing.seal.check import Check
from ruler.auditing.seal.manifest import find_digests, hash_bytes
from ruler.core.errors import RulerError
from ruler.neighbors import Searcher

_MOST_NAMED = 5


def check_rerun(folder: Path, *, search: Callable[[str | None], Searcher]) -> Iterator[Check]:
    """Audit again what the report names, and compare; only the time of the audit may differ.

    Args:
        folder: Of the report. Its inputs are looked for where they were, relative to the current folder.
        search: Gives who searches neighbours on a device.
    """
    try:
        saved = load_report(folder)
        again = repeat(saved, search=search)
    except RulerError as error:
        yield Check("rerun", False, f"The audit could not be repeated. {error}")
        return
    before, now = (dict(find_digests(report.provenance.get("inputs"))) for report in (saved, again))
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        yield Check("rerun", False, f"The inputs are not those of the report: {_name(changed)} changed.")
        return
    created_at = saved.provenance.get("created_at")
    again = replace(again, provenance={**again.provenance, "created_at": created_at})
    records = write_records(again.records)
    document = write_document(again, records_digest=hash_bytes(records)).encode("utf-8", "backslashreplace")
    if records != (folder / "records.parquet").read_bytes():
        yield Check("rerun", False, "The audit gives other records than records.parquet holds.")
    stated = (folder / "report.json").read_bytes()
    if document != stated:
        places = list(_compare(json.loads(stated), json.loads(document)))
        yield Check("rerun", False, f"The audit gives another report.json; other are {_name(places) or 'its bytes'}.")
    elif records == (folder / "records.parquet").read_bytes():
        yield Check("rerun", True, "The audit was repeated from its inputs and gives the same report, to the bit.")


def _compare(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Places where two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            yield from _compare(one.get(name), other.get(name), f"{path}.{name}" if path else name)
    elif repr(one) != repr(other):
        yield path


def _name(places: list[str]) -> str:
    rest = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return f"{', '.join(places[:_MOST_NAMED])}{rest}"
