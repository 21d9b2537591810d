"""The store only grows, takes any number of writers, and gives back what was put in."""

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ruler.core.errors import FileFormatError, InputError
from ruler.experiment.cell import Outcome
from ruler.experiment.grid import Cell, list_cells
from ruler.experiment.rows import Provenance
from ruler.experiment.store import ResultStore, load_results
from ruler.experiment.studies import STUDIES

MADE_BY = Provenance(device="cpu", ruler_version="0", commit=None, torch_version="2", machine="this")
CELL = Cell("primary", "adult", "scrub", 0.05, 0, 5e-4)
SCORES = {"n_forget": 12, "m1": 0.9, "m2": -0.001, "m4": 0.5}


def add(store: ResultStore, cell: Cell, **scores: float) -> None:
    store.add(Outcome(cell, SCORES | scores, 1.5), MADE_BY)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def test_a_row_comes_back_with_nan_for_what_does_not_apply(path: Path) -> None:
    with ResultStore(path) as store:
        add(store, CELL)
    table = load_results(path)
    assert len(table) == 1
    row = table.iloc[0]
    assert (row.study, row.dataset, row.method, row.engine) == ("primary", "adult", "scrub", "protocol")
    assert (row.m2, row.n_forget, row.elapsed_s, row.device) == (-0.001, 12, 1.5, "cpu")
    for name in ("m3", "mia", "batch_size", "teacher_seed", "other_seed"):
        assert np.isnan(row[name]), name


def test_columns_are_the_documented_ones(path: Path) -> None:
    ResultStore(path).close()
    assert list(load_results(path).columns) == [
        *("study", "dataset", "method", "forget_fraction", "seed", "learning_rate", "batch_size", "forget_seed"),
        *("teacher_seed", "other_seed", "n_forget", "m1", "m2", "m2_mean_baseline", "m3", "m4", "mia"),
        *("forget_accuracy", "retain_accuracy", "test_accuracy", "engine", "models", "device", "elapsed_s"),
        *("ruler_version", "commit", "torch_version", "machine", "finished_at"),
        *("architecture", "forget_choice", "precision", "size", "model", "m4_held_out", "m4_placebo"),
        *("m4_placebo_sd", "m4_placebo_low", "m4_placebo_high", "m4_placebo_p", "n_groups"),
        *("verdict", "outputs_verdict", "layers_verdict", "loss_verdict", "readout_verdict", "tangent_verdict"),
        *("relearned_verdict", "m2_verdict", "m4_verdict", "norm_verdict", "seen"),
        *("outputs_remaining", "outputs_remaining_low", "outputs_remaining_high"),
        *("layers_remaining", "layers_remaining_low", "layers_remaining_high"),
        *("loss_effect", "loss_p_value", "readout_effect", "readout_p_value", "tangent_effect", "tangent_p_value"),
        *("relearned_effect", "relearned_p_value", "m2_effect", "m2_p_value", "m4_effect", "m4_p_value"),
        *("norm_effect", "norm_p_value"),
        *("damage_similarity", "damage_skill", "layers", "peers", "reasons", "recipe", "options", "choice"),
        *("unlearning_s", "retraining_s"),
    ]


def list_columns(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute("PRAGMA table_info(results)")]


@pytest.mark.parametrize("first_absent", ["architecture", "norm_verdict"])
def test_a_file_from_before_some_columns_gets_them_and_keeps_its_rows(path: Path, first_absent: str) -> None:
    ResultStore(path).close()
    columns = list_columns(path)
    old = columns[: columns.index(first_absent)]
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE results ({', '.join(f'{chr(34)}{name}{chr(34)}' for name in old)})")
        values = {"key": "k", "version": 1, "study": "primary", "n_forget": 5, "m4": 0.5, "engine": "protocol"}
        values |= {"architecture": "tabular_mlp", "size": "full"}
        row = [values.get(name) for name in old]
        connection.execute(f"INSERT INTO results VALUES ({', '.join('?' * len(old))})", row)
    connection.close()
    found = load_results(path).iloc[0]
    assert (found["study"], found["architecture"], found["size"], found["m4"]) == (
        "primary",
        "tabular_mlp",
        "full",
        0.5,
    )
    assert math.isnan(found["m4_held_out"])
    assert math.isnan(found["damage_similarity"])
    with ResultStore(path) as store:
        add(store, CELL, loss_effect=0.4)
    assert sorted(load_results(path)["loss_effect"].fillna(0)) == [0, 0.4]


def test_the_first_row_of_a_cell_stays(path: Path) -> None:
    with ResultStore(path) as store:
        add(store, CELL, m2=1.0)
        add(store, CELL, m2=2.0)
        assert store.list_finished() == {CELL.key}
    assert load_results(path).m2.tolist() == [1.0]


@pytest.mark.parametrize("statement", ["DELETE FROM results", "UPDATE results SET m2 = 0"])
def test_rows_cannot_be_changed_or_removed(path: Path, statement: str) -> None:
    with ResultStore(path) as store:
        add(store, CELL)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="results are append-only"):
        connection.execute(statement)
    connection.close()
    assert len(load_results(path)) == 1


def test_many_writers_at_once_leave_each_cell_once(path: Path) -> None:
    cells = list_cells(STUDIES["minibatch"])[:60]

    def write(turn: int) -> None:
        with ResultStore(path) as store:
            for cell in cells[turn % 7 :] + cells[: turn % 7]:
                add(store, cell)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(12)))
    with ResultStore(path) as store:
        assert store.list_finished() == {cell.key for cell in cells}
        assert len(store.list_rows()) == len(cells)


def test_rows_stand_in_an_order_that_does_not_depend_on_the_run(path: Path, tmp_path: Path) -> None:
    cells = list_cells(STUDIES["bad-teacher"])[:30]
    other = tmp_path / "other.sqlite"
    with ResultStore(path) as one, ResultStore(other) as two:
        for cell in cells:
            add(one, cell)
        for cell in reversed(cells):
            add(two, cell)
    first, second = (load_results(file).drop(columns="finished_at") for file in (path, other))
    assert first.equals(second)


def test_failures_are_kept_until_the_cell_has_a_row(path: Path) -> None:
    with ResultStore(path) as store:
        store.add(Outcome(CELL, None, 0.1, error="InputError: first"), MADE_BY)
        store.add(Outcome(CELL, None, 0.1, error="InputError: second"), MADE_BY)
        assert store.list_failures() == {CELL.key: "InputError: second"}
        assert store.list_finished() == set()
        add(store, CELL)
        assert store.list_failures() == {}


def test_a_study_is_held_in_one_variant(path: Path) -> None:
    with ResultStore(path) as store:
        add(store, CELL)
        store.check_variant([CELL])
        store.check_variant([Cell("bad-teacher", "adult", "bad_teacher", 0.05, 0, 5e-4, engine="ensemble")])
        found = "must hold the study primary in one variant; got rows of protocol / trained models and a run of"
        for changes, asked, advice in (
            ({"engine": "ensemble"}, "ensemble / trained", "Resume with --engine protocol, or name"),
            ({"models": "imported"}, "protocol / imported", "Name"),
            ({"engine": "ensemble", "size": "smoke"}, "ensemble / trained / smoke", "Name"),
        ):
            with pytest.raises(InputError) as caught:
                store.check_variant([Cell("primary", "adult", "scrub", 0.05, 1, 5e-4, **changes)])
            assert str(caught.value) == f"{path} {found} {asked} models. {advice} another folder with --out."


def test_rows_of_an_older_pipeline_are_left_out(path: Path) -> None:
    with ResultStore(path) as store:
        add(store, CELL)
    rest = ", ".join(f'"{name}"' for name in list_columns(path)[2:])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"INSERT INTO results SELECT 'older', version - 1, {rest} FROM results")
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (2,)
    assert len(load_results(path)) == 1


def test_an_engine_of_a_newer_version_hides_no_rows_of_another(path: Path) -> None:
    images = Cell("images", "svhn", "scrub", 0.05, 0, 5e-4, 128, engine="diagnostic", precision="float32")
    assert images.version > CELL.version
    with ResultStore(path) as store:
        add(store, CELL)
        add(store, images)
        store.check_variant([replace(images, precision="float32")])
    assert sorted(load_results(path)["engine"]) == ["diagnostic", CELL.engine]


def test_rows_of_an_older_version_do_not_decide_the_variant(path: Path) -> None:
    images = Cell("images", "svhn", "scrub", 0.05, 0, 5e-4, 128, engine="diagnostic", precision="float32")
    with ResultStore(path) as store:
        add(store, images)
        with pytest.raises(InputError, match="study images in one variant"):
            store.check_variant([replace(images, precision="bfloat16")])
    older = path.with_name("older.sqlite")
    ResultStore(older).close()
    with closing(sqlite3.connect(older)) as connection, connection:
        connection.execute("ATTACH ? AS newer", (str(path),))
        rest = ", ".join(f'"{name}"' for name in list_columns(older)[2:])
        connection.execute(f"INSERT INTO results SELECT 'older', version - 1, {rest} FROM newer.results")
    with ResultStore(older) as store:
        assert store.list_finished() == {"older"}
        store.check_variant([replace(images, precision="bfloat16")])


def test_a_file_of_another_kind_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("not a database, but long enough to look like one" * 40)
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match="must be a results file of this version; got file is not a database"):
        ResultStore(path)
    assert path.read_bytes() == before


def test_another_database_is_refused(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE results (name TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(FileFormatError, match="got tables with other columns"):
        ResultStore(path)


def test_no_results_yet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"path must be a results file; got .*results.sqlite, which does not exist"):
        load_results(tmp_path)


def test_texts_are_held_in_one_language_model(path: Path) -> None:
    notes = Cell("clinical", "mtsamples", "scrub", 0.05, 0, 5e-5, 16, engine="diagnostic", architecture="bert_mlm")
    with ResultStore(path) as store:
        add(store, CELL)
        store.check_language_model("any")
        store.add(Outcome(notes, {"m4": 0.5, "model": "one"}, 0.1), MADE_BY)
        store.check_language_model("one")
        with pytest.raises(InputError, match=r"one language model; got rows of one and a run of two.*--language-model"):
            store.check_language_model("two")
