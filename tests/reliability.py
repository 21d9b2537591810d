"""`python -m tests.reliability --write docs/reliability.md`: what bundles, hostile files and forgeries came to.

The other tables of that page are written by `python -m tests.fuzz`, `python -m tests.faults.kill` and `make mutants`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.kill import write
from tests.fuzz.bundles import BUNDLES, TRAPS, audit_trapped, import_traps

from ruler.core.text import markdown_table


def describe_bundles(root: Path) -> list[str]:
    """Which traps ran during an audit of each kind of bundle, and which run if they are imported."""
    left = {}
    for kind in BUNDLES:
        done = audit_trapped(root / kind, kind)
        assert done.returncode in (0, 1, 3), done.stderr
        left[kind] = {mark.name for mark in (root / kind / "marks").iterdir()}
    on_purpose = import_traps(root / "on purpose")
    rows = []
    for trap, marks in TRAPS.items():
        found = [*(left[kind] for kind in BUNDLES), on_purpose]
        rows.append([trap, *(f"{len(set(marks) & one)} of {len(marks)} ran" for one in found)])
    return markdown_table(
        ["In the bundle", *(f"`ruler audit`: {kind}" for kind in BUNDLES), "imported on purpose"], rows
    )


def describe_reproducers(root: Path) -> list[str]:
    """What the command line makes of every hostile file."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.reproducers", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    rows = []
    for one in found:
        lines = [line for line in one["stderr"].splitlines() if not line.startswith("ruler: will execute ")]
        rows.append(
            [one["name"].replace("_", " "), *map(str, (one["status"], len(lines))),
             f"{one['cpu_s']:.2f}", f"{one['more_bytes'] / 1e6:.0f}"]
        )  # fmt: skip
    head = (
        f"{len(rows)} files: the longest took {max(one['cpu_s'] for one in found):.1f} s, and the largest needed "
        f"{max(one['more_bytes'] for one in found) / 1e6:.0f} MB beyond the start of the command."
    )
    marks = ["---", *["--:"] * 4]
    return [head, "", *markdown_table(["File", "status", "lines", "CPU s", "MB"], rows, marks=marks)]


class Tally:
    """A pytest plugin: adds up what passing tests say they found."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            assert report.passed, report.longreprtext
            for name, n in report.user_properties:
                self.found[name] += int(str(n))


def describe_forgeries() -> list[str]:
    """How many changes of sealed reports were found; one that is not found fails its test."""
    tally = Tally()
    status = pytest.main(["-q", "-p", "no:cacheprovider", "tests/auditing/seal/test_check.py"], plugins=[tally])
    assert status == 0
    rows = [[name, f"{n:,}", f"{n:,}"] for name, n in tally.found.items()]
    return markdown_table(["Change", "tried", "found"], rows, marks=["---", "--:", "--:"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="page whose tables are replaced")
    page = parser.parse_args().write
    tables = {"forgeries": describe_forgeries()}  # first: pytest rewrites modules before others import them
    with tempfile.TemporaryDirectory() as folder:
        tables["bundles"] = describe_bundles(Path(folder, "bundles"))
        Path(folder, "files").mkdir()
        tables["hostile files"] = describe_reproducers(Path(folder, "files"))
    for table in tables.values():
        print(*table, "", sep="\n")
    if page is not None:
        write(tables, page)


if __name__ == "__main__":
    main()
