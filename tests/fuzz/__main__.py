"""`python -m tests.fuzz --seconds 60 --jobs 2`: feed changed files to every reader; ends with 1 if one fails."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from tests.fuzz.run import Count, Failure, run
from tests.fuzz.targets import TARGETS

from ruler.core.files import write_atomically
from ruler.core.text import markdown_table

BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"
_MOST_SHOWN = 5


def describe(counts: dict[str, Count]) -> str:
    """The section of docs/reliability.md: what was fed, what was refused, what failed."""
    total = Count()
    for count in counts.values():
        total.add(count)
    rows = [
        [name, f"{one.n_inputs:,}", f"{one.n_refused / max(1, one.n_inputs):.0%}", f"{one.n_failed:,}"]
        for name, one in counts.items()
    ]
    head = (
        f"{total.n_inputs:,} changed files over {len(counts)} readers in {total.cpu_s / 60:,.0f} minutes of one core "
        f"({total.n_inputs / max(total.cpu_s, 1e-9):,.0f} per second). Each must end in a result or in RULER's "
        f"own error, within 20 s and 1 GB: {total.n_failed} did not. `make fuzz` repeats it."
    )
    table = markdown_table(["Reader", "Inputs", "Refused", "Failed"], rows, marks=["---", "--:", "--:", "--:"])
    return "\n".join([head, "", *table, ""])


def add_earlier(counts: dict[str, Count], path: Path) -> dict[str, Count]:
    """Add the counts of earlier runs that a file keeps, and keep the sum.

    A target that failed and was fed again counts anew, since its reader must have been repaired.
    """
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    found = {name: Count(**earlier.get(name, {})) for name in TARGETS if name in earlier or name in counts}
    for name, count in counts.items():
        if found[name].n_failed:
            found[name] = Count()
        found[name].add(count)
    write_atomically(path, json.dumps({name: dataclasses.asdict(count) for name, count in found.items()}, indent=1))
    return found


def write_section(path: Path, text: str) -> None:
    """Put the text between the markers of a page, which is made if it is absent."""
    page = (
        path.read_text(encoding="utf-8") if path.is_file() else f"# Reliability\n\n## Changed files\n\n{BEGIN}\n{END}\n"
    )
    if BEGIN not in page:
        page = f"{page.rstrip()}\n\n## Changed files\n\n{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    write_atomically(path, f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")


def keep(failures: list[Failure], folder: Path) -> None:
    """Write the files of each failure, and what it said, into a folder of its own."""
    for number, failure in enumerate(failures):
        place = folder / f"{failure.target}-{number}"
        for name, content in {**failure.files, "what.txt": failure.what.encode(errors="replace")}.items():
            write_atomically(place / name, content)


def main() -> int:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="*", default=[], choices=list(TARGETS))
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="folder for inputs that fail")
    parser.add_argument("--keep", type=Path, help="JSON file of counts, to which those of this run are added")
    parser.add_argument("--write", type=Path, help="page whose section is written, such as docs/reliability.md")
    asked = parser.parse_args()
    counts, failures = run(asked.seconds, asked.jobs, asked.targets, asked.seed)
    text = describe(add_earlier(counts, asked.keep) if asked.keep else counts)
    print(text)
    keep(failures, asked.found)
    for failure in failures[:_MOST_SHOWN]:
        print(f"{failure.target}: {failure.what.strip()[-1500:]}\n", file=sys.stderr)
    if asked.write:
        write_section(asked.write, text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
