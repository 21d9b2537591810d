"""Every reader is fed changed files for a few seconds; and what counts as a failure is seen as one."""

from random import Random

import pytest
from tests.fuzz import run as running
from tests.fuzz.__main__ import BEGIN, END, add_earlier, describe, write_section
from tests.fuzz.mutate import GZIP, PNG, SAFETENSORS, ZIP, mutate
from tests.fuzz.targets import TARGETS, Target

from ruler.core.errors import FileFormatError

HEAVY = (
    "_pt",
    "checkpoint",
    "adapter",
    "transformer",
    "image_processor",
    "weights_index",
    "seal_folder",
    "results_sqlite",
)
LIGHT = [name for name in TARGETS if not any(word in name for word in HEAVY)]


def check(counts, failures):
    assert [f"{failure.target}: {failure.what}" for failure in failures] == []
    assert all(count.n_inputs > 0 for count in counts.values())


def test_changed_files_end_in_a_result_or_an_error_of_ours():
    counts, failures = running.run(seconds=4, jobs=1, names=LIGHT, seed=1)
    check(counts, failures)
    assert sum(count.n_refused for count in counts.values()) > 100


@pytest.mark.slow
def test_changed_files_for_minutes_and_readers_that_load_models():
    assert len(TARGETS) >= 25
    check(*running.run(seconds=180, jobs=2, seed=2))


def run_out(folder):
    try:
        raise MemoryError
    except MemoryError:
        raise FileFormatError("must fit into memory") from None


def refuse(folder):
    raise FileFormatError("refused")


READERS = {
    "sound": (lambda folder: None, 0, 0),
    "refusing": (refuse, 1, 0),
    "raising": (lambda folder: {}["x"], 0, 1),
    "panicking": (lambda folder: exit(), 0, 1),
    "out of memory": (run_out, 0, 1),
}


@pytest.mark.parametrize(("read", "is_refused", "is_failed"), READERS.values(), ids=READERS)
def test_what_counts_as_a_failure(read, is_refused, is_failed, tmp_path, monkeypatch):
    monkeypatch.setitem(running.TARGETS, "probe", lambda: Target({"a": b"abc"}, read))
    found = []
    count = running.fuzz("probe", Random(0), 0.01, tmp_path / "input", found)
    assert count.n_inputs > 1
    assert (count.n_refused, count.n_failed) == (is_refused * count.n_inputs, is_failed * count.n_inputs)
    assert len(found) == count.n_failed
    assert all(failure.files["a"] != b"abc" or failure.what for failure in found)


def test_changes_differ_and_stay_bounded():
    random = Random(0)
    changed = {mutate(random, b"0123456789" * 20) for _ in range(500)}
    assert len(changed) > 450
    assert max(map(len, changed)) < 100_000
    assert mutate(random, b"")


def test_containers_close_what_they_open():
    files = {
        "rows.npz": (ZIP, TARGETS["embeddings_npz"]),
        "rows.safetensors": (SAFETENSORS, TARGETS["embeddings_safetensors"]),
        "a.png": (PNG, TARGETS["images_png"]),
        "a.csv.gz": (GZIP, TARGETS["table_csv_gz"]),
    }
    for name, (container, build) in files.items():
        content = build().files[name]
        assert container.open(container.close(container.open(content))) == container.open(content)
        assert len({container.mutate(Random(seed), content) for seed in range(20)}) > 15


def test_the_section_is_written_between_its_markers(tmp_path):
    page = tmp_path / "reliability.md"
    page.write_text("# Reliability\n\n## Faults\n\nkept\n")
    for n in (5, 7):
        counts = {"rows_csv": running.Count(n_inputs=n, n_refused=2, cpu_s=0.5)}
        write_section(page, describe(counts))
    text = page.read_text()
    assert (text.count(BEGIN), text.count(END), text.count("## Changed files")) == (1, 1, 1)
    assert "7 changed files over 1 readers in 0 minutes of one core (14 per second)." in text
    assert "within 20 s and 1 GB: 0 did not." in text
    assert "kept" in text


def test_counts_add_up_over_runs_until_a_reader_is_repaired(tmp_path):
    path = tmp_path / "counts.json"
    runs = [("rows_csv", 5, 0), ("groups_csv", 3, 1), ("rows_csv", 4, 0), ("groups_csv", 9, 0)]
    for name, n_inputs, n_failed in runs:
        found = add_earlier({name: running.Count(n_inputs=n_inputs, n_failed=n_failed)}, path)
    assert {name: (one.n_inputs, one.n_failed) for name, one in found.items()} == {
        "groups_csv": (9, 0),
        "rows_csv": (9, 0),
    }
