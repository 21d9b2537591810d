"""Kill studies and reports at random moments: is anything finished lost, and is any number changed?

``python -m tests.faults.kill --kills 200 --write docs/reliability.md`` takes about 15 minutes on 2 cores.

Studies: `ruler reproduce` is run with two workers, and a worker, the coordinator or the whole group gets SIGKILL; the
same command then resumes. Rows that stood in the store before a kill must stand there afterwards, unchanged. When a
study is complete, its scores are compared with those of an undisturbed run, to the bit, and the next one begins.

Reports: a process that saves and signs one report after the other gets SIGKILL. Each folder must then be absent or
pass every check of `ruler verify`.
"""

import argparse
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from ruler.auditing.seal.check import check_report
from ruler.auditing.seal.signature import PUBLIC_NAME
from ruler.core.text import markdown_table

ROOT = Path(__file__).parents[2]
STUDY = ["primary", "--datasets", "breast_cancer", "--methods", "gradient_ascent", "scrub", "--jobs", "2"]
STUDY += ["--engine", "protocol"]
VERB = [sys.executable, "-c", "from ruler.cli import main; main()", "reproduce", *STUDY]
SCORES = "m1, m2, m2_mean_baseline, m3, m4, mia, forget_accuracy, retain_accuracy, test_accuracy"
SAVER = """
import itertools, sys
from pathlib import Path
import numpy as np
import ruler
from ruler.auditing import AuditSettings
from ruler.auditing.seal.signature import make_keys
folder = Path(sys.argv[1])
key, _ = make_keys(folder / "keys")
sides = np.split(np.random.default_rng(0).normal(size=(360, 6)), [60, 260])
report = ruler.audit(sides, settings=AuditSettings(n_permutations=99))
report.save(folder / "first", sign_with=key)
print("ready", flush=True)
for number in itertools.count():
    report.save(folder / str(number), sign_with=key)
"""
TARGETS = ("worker", "coordinator", "group")
Scores = dict[str, tuple[float | None, ...]]
LONGEST_PAUSE_S, LONGEST_WAIT_S, LONGEST_STUDY_S = 5.0, 60.0, 1200.0


def run_campaign(
    n_kills: int, n_report_kills: int, *, words: list[str], seed: int, folder: Path, wanted: Scores | None = None
) -> Counter[str]:
    """Kill a study, narrowed by these words, and reports that often; returns what was counted.

    ``lost``, ``changed``, ``torn`` and ``orphans`` should be 0. Scores are compared with ``wanted``, by default those
    of an undisturbed run.
    """
    counts: Counter[str] = Counter()
    draw = random.Random(seed)
    if wanted is None:
        wanted = read_scores(finish(folder / "undisturbed", words)) if n_kills else {}
    while sum(counts[target] for target in TARGETS) < n_kills:
        disturb(folder / f"study-{counts['studies']}", n_kills, words, draw, counts)
        found = read_scores(finish(folder / f"study-{counts['studies']}", words))
        counts["studies"] += 1
        counts["cells"] += len(wanted)
        counts["changed"] += sum(found.get(key) != scores for key, scores in wanted.items())
    for number in range(n_report_kills):
        kill_saver(folder / f"reports-{number}", draw, counts)
    return counts


def start(out: Path, words: list[str]) -> "subprocess.Popen[bytes]":
    command = [*VERB, *words, "--out", str(out)]
    variables = os.environ | {"RULER_CACHE": f"{out}-cache"}
    return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            start_new_session=True)  # fmt: skip


def finish(out: Path, words: list[str]) -> Path:
    """Run or resume the study to its end."""
    for _ in range(2):  # jobs that three workers died over are recorded as failed, and done by the next run
        if start(out, words).wait(LONGEST_STUDY_S) == 0:
            return out
    raise AssertionError(f"{out} must be finished by an undisturbed run")


def disturb(out: Path, n_kills: int, words: list[str], draw: random.Random, counts: Counter[str]) -> None:
    """Kill until the study is complete or the kills are spent."""
    process = start(out, words)
    while sum(counts[target] for target in TARGETS) < n_kills:
        wait(out, process, draw)
        before = read_rows(out)
        if process.poll() is not None:
            return
        workers = [pid for pid in list_children(process.pid) if is_worker(pid)]
        target = draw.choice(TARGETS if workers else TARGETS[1:])
        if target == "worker":
            kill(draw.choice(workers))
        elif target == "coordinator":
            kill(process.pid)
        else:
            os.killpg(process.pid, signal.SIGKILL)
        counts[target] += 1
        if target != "worker":
            process.wait()
            counts["orphans"] += not are_gone(workers)
            process = start(out, words)
        counts["seen"] += len(before)
        counts["lost"] += len(before - read_rows(out))
    process.kill()
    process.wait()


def wait(out: Path, process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    """Until any moment: often while processes load, more often in the second after a new row."""
    if draw.random() < 0.3:
        time.sleep(draw.uniform(0.0, LONGEST_PAUSE_S))
        return
    n_rows, deadline_s = len(read_rows(out)), time.monotonic() + LONGEST_WAIT_S
    while process.poll() is None and len(read_rows(out)) == n_rows and time.monotonic() < deadline_s:
        time.sleep(0.05)
    time.sleep(draw.uniform(0.0, 1.0))


def kill_saver(folder: Path, draw: random.Random, counts: Counter[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", SAVER, str(folder)], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(draw.uniform(0.0, 0.5))
    process.kill()
    process.communicate()
    counts["saver"] += 1
    for report in folder.glob("[f0-9]*"):
        counts["reports"] += 1
        checks = check_report(report, key=folder / "keys" / PUBLIC_NAME)
        counts["torn"] += any(check.holds is False for check in checks)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, signal.SIGKILL)


def read_rows(out: Path) -> set[tuple[object, ...]]:
    """All that the store holds, with the time at which each row was written."""
    if not (out / "results.sqlite").is_file():
        return set()
    with closing(sqlite3.connect(out / "results.sqlite", timeout=60)) as connection:
        is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'results'").fetchone()
        return set(connection.execute("SELECT * FROM results")) if is_there else set()


def read_scores(out: Path) -> Scores:
    """Key of a cell -> its scores."""
    with closing(sqlite3.connect(out / "results.sqlite")) as connection:
        return {key: tuple(scores) for key, *scores in connection.execute(f"SELECT key, {SCORES} FROM results")}


def list_children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.is_file() else []


def is_worker(pid: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def are_gone(workers: list[int]) -> bool:
    """Whether workers end with their coordinator."""
    deadline_s = time.monotonic() + 20
    while any(map(is_worker, workers)):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def describe(counts: Counter[str]) -> dict[str, list[str]]:
    """Marker on the page -> table."""
    targets = ", ".join(f"{target} {counts[target]}" for target in TARGETS)
    kills = str(sum(counts[target] for target in TARGETS))
    studies = f"scores of {counts['cells']:,} cells in {counts['studies']} studies, to the bit"
    rows = {
        "kills": [
            [f"`ruler reproduce`: {targets}", kills, f"{counts['seen']:,} rows in the store at a kill", "lost"],
            ["", "", studies, "changed"],
            ["", "", "workers after their coordinator's death", "orphans"],
        ],
        "kills of reports": [
            ["a report being saved and signed", str(counts["saver"]), f"{counts['reports']:,} folders", "torn"]
        ],
    }
    return {
        name: markdown_table(
            ["killed", "kills", "looked at afterwards", "faults"],
            [[*row, f"{counts[fault]} {fault}"] for *row, fault in part],
            marks=["---", "--:", "---", "--:"],
        )
        for name, part in rows.items()
        if part[0][1] != "0"
    }


def write(tables: dict[str, list[str]], page: Path) -> None:
    """Put tables between their markers on the page."""
    text = page.read_text(encoding="utf-8")
    for name, lines in tables.items():
        opening, table = f"<!-- measured: {name} -->\n", "\n".join(lines)
        text, n_found = re.subn(f"{opening}.*?<!-- end -->", f"{opening}{table}\n<!-- end -->", text, flags=re.S)
        assert n_found == 1, f"{page} must have the markers of {name} once"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of studies")
    parser.add_argument("--report-kills", type=int, default=50, help="of processes that save reports")
    parser.add_argument("--seeds", type=int, default=8, help="of each study")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and targets")
    parser.add_argument("--write", type=Path, help="page whose table is replaced")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ruler-kills-") as folder:
        words = ["--seeds", str(options.seeds)]
        counts = run_campaign(options.kills, options.report_kills, words=words, seed=options.seed, folder=Path(folder))
    for table in describe(counts).values():
        print(*table, sep="\n")
    if options.write is not None:
        write(describe(counts), options.write)
    sys.exit(int(any(counts[fault] for fault in ("lost", "changed", "orphans", "torn"))))


if __name__ == "__main__":
    main()
