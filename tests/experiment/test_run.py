"""Runs resume from whatever was left behind, and end with the same rows as an undisturbed one."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from ruler.core import progress
from ruler.core.errors import DownloadError, FileFormatError, InputError, RulerError, UnknownNameError
from ruler.experiment.cell import Outcome
from ruler.experiment.executors import Executor, LocalExecutor, RayExecutor
from ruler.experiment.grid import list_cells
from ruler.experiment.rows import Provenance
from ruler.experiment.run import (
    RESULTS_FILE,
    STUDY_FILE,
    Progress,
    RunSettings,
    export_models,
    gather_inputs,
    run_studies,
    show_run,
)
from ruler.experiment.settings import StudySettings, format_studies, read_studies
from ruler.experiment.store import ResultStore, load_results
from ruler.experiment.studies import STUDIES, choose_studies, choose_variant, shrink_studies
from ruler.testing.executors import InProcessExecutor

PROVENANCE = ["elapsed_s", "ruler_version", "commit", "torch_version", "machine", "finished_at"]
TINY = StudySettings("primary", ("breast_cancer",), ("gradient_ascent", "scrub"), (0.05,), (0, 1))


def settings_for(folder: Path, **changes: object) -> RunSettings:
    return RunSettings(out=folder, executor=InProcessExecutor(), models=folder / "models", **changes)  # type: ignore[arg-type]


def values_of(folder: Path) -> pd.DataFrame:
    return load_results(folder).drop(columns=PROVENANCE)


def test_a_run_leaves_rows_and_its_settings_and_a_second_one_has_nothing_to_do(tmp_path: Path) -> None:
    earlier = replace(TINY, name="own")
    (tmp_path / STUDY_FILE).write_text(format_studies([earlier]))
    seen: list[Progress] = []
    summary = run_studies([TINY], settings_for(tmp_path), on_progress=seen.append)
    assert (summary.n_cells, summary.n_done, summary.n_new, summary.failures) == (4, 4, 4, {})
    assert (seen[-1].n_done, seen[-1].share) == (4, 1.0)
    assert read_studies(tmp_path / STUDY_FILE) == (earlier, TINY)

    more: list[Progress] = []
    longer = replace(TINY, seeds=(0, 1, 2))
    run_studies([longer], settings_for(tmp_path), on_progress=more.append)
    assert (more[0].n_done, more[0].n_cells) == (4, 6)  # a resumed run counts from the start
    assert more[0].share == pytest.approx(2 / 3, abs=0.01)
    assert (more[-1].n_done, more[-1].share) == (6, 1.0)

    before = load_results(tmp_path)
    again = run_studies([TINY], settings_for(tmp_path))
    assert (again.n_done, again.n_new) == (4, 0)
    assert load_results(tmp_path).equals(before)


def test_failing_cells_are_reported_and_retried_once_they_can_succeed(tmp_path: Path) -> None:
    published = tmp_path / "published"
    study = replace(TINY, methods=("gradient_ascent",))
    export_models([replace(study, seeds=(0,))], settings_for(tmp_path), published)
    imported = replace(study, models="imported")
    settings = settings_for(tmp_path, checkpoints=published)
    first = run_studies([imported], settings)
    assert (first.n_done, first.n_new) == (1, 1)
    ((cell, error),) = first.failures.items()
    assert cell.seed == 1
    assert "breast_cancer_seed1_oracle_ff05.pt must exist" in error

    export_models([replace(study, seeds=(1,))], settings_for(tmp_path), published)
    second = run_studies([imported], settings)
    assert (second.n_done, second.n_new, second.failures) == (2, 1, {})


@pytest.mark.slow  # test_engines.py has the order of cells and their other company, tests/cluster has several processes
def test_a_resumed_ensemble_in_several_processes_gives_the_rows_of_one(tmp_path: Path) -> None:
    study = replace(TINY, forget_fractions=(0.05, 0.1), has_reference_rows=True, engine="ensemble")
    (tmp_path / "whole").mkdir()
    run_studies([study], settings_for(tmp_path / "whole"))
    part = replace(study, methods=("scrub",), seeds=(1,), forget_fractions=(0.1,))
    for some, n_jobs in ((part, 1), (study, 2)):
        summary = run_studies([some], RunSettings(tmp_path / "parts", LocalExecutor(n_jobs)))
    assert (summary.n_cells, summary.n_new, summary.failures) == (16, 13, {})
    pd.testing.assert_frame_equal(values_of(tmp_path / "parts"), values_of(tmp_path / "whole"), check_exact=True)


def test_results_of_another_variant_are_not_mixed(tmp_path: Path) -> None:
    made_by = Provenance(device="cpu", ruler_version="0", commit=None, torch_version="2", machine="this")
    with ResultStore(tmp_path / RESULTS_FILE) as store:
        cell = list_cells(replace(TINY, engine="ensemble"))[0]
        store.add(Outcome(cell, {"n_forget": 3}, 1.0), made_by)
    with pytest.raises(InputError, match=r"study primary in one variant; .* Resume with --engine ensemble, or name"):
        run_studies([TINY], settings_for(tmp_path))


def test_variants() -> None:
    studies = tuple(study for study in STUDIES.values() if study.engine != "diagnostic")

    def engines(engine: str | None, device: str) -> dict[str, str]:
        chosen = choose_variant(studies, engine=engine, device=device, is_imported=False)
        return {study.name: study.engine for study in chosen}

    for device in ("cpu", "cuda"):
        assert {name for name, engine in engines(None, device).items() if engine == "protocol"} == {"minibatch"}
    assert set(engines("protocol", "cpu").values()) == {"protocol"}
    assert engines("ensemble", "cpu") == engines(None, "cuda")
    with pytest.raises(InputError, match="device must be cpu for the engine protocol; got cuda"):
        engines("protocol", "cuda")
    with pytest.raises(UnknownNameError, match="device must be one of cpu, cuda"):
        engines(None, "gpu")
    with pytest.raises(UnknownNameError, match="engine must be one of"):
        engines("fast", "cpu")
    (imported,) = choose_variant(studies[:1], engine=None, device="cpu", is_imported=True)
    assert (imported.engine, imported.models) == ("protocol", "imported")
    for engine, expected in ((None, "protocol"), ("ensemble", "ensemble")):
        (exported,) = choose_variant(studies[:1], engine=engine, device="cpu", is_imported=False, is_exported=True)
        assert exported.engine == expected
    own = StudySettings("own", ("breast_cancer",), ("sisa",), seeds=(0,))  # no terms, which the ensemble needs
    assert choose_variant([own], engine=None, device="cpu", is_imported=False) == (own,)
    everything = choose_variant(studies, engine=None, device="cpu", is_imported=True)
    assert {study.name for study in everything if study.models == "trained"} == {"minibatch"}
    with pytest.raises(InputError, match="checkpoints must be omitted for mini batches"):
        choose_variant((STUDIES["minibatch"],), engine=None, device="cpu", is_imported=True)


def test_settings_of_a_run_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="jobs must be a whole number of at least 1; got 0"):
        LocalExecutor(0)
    with pytest.raises(InputError, match=r"checkpoints must be a folder; got .*, which is not one"):
        RunSettings(out=tmp_path, checkpoints=tmp_path / "absent")
    with pytest.raises(UnknownNameError, match="device must be one of"):
        RunSettings(out=tmp_path, device="tpu")


def test_cuda_that_is_not_there_is_said(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match="torch finds no CUDA device"):
        run_studies([TINY], RunSettings(out=tmp_path, device="cuda"))


def test_only_models_with_a_published_name_are_exported(tmp_path: Path) -> None:
    for study in (STUDIES["minibatch"], replace(TINY, engine="ensemble"), replace(TINY, forget_seeds=(1000,))):
        with pytest.raises(InputError, match="export-checkpoints must be used with models of the engine protocol"):
            export_models([study], settings_for(tmp_path), tmp_path)


def test_diagnostic_studies_keep_their_engine_and_take_the_precision_that_is_asked_for() -> None:
    asked = (STUDIES["large-tabular"], STUDIES["images"])
    for device in ("cpu", "cuda"):
        chosen = choose_variant(asked, engine=None, device=device, is_imported=False)
        assert [study.engine for study in chosen] == ["diagnostic", "diagnostic"]
        assert [study.precision for study in chosen] == ["float32", "float32"]
        for precision in ("float32", "bfloat16"):
            chosen = choose_variant(asked, engine=None, device=device, is_imported=False, precision=precision)
            assert [study.precision for study in chosen] == [precision, precision]
    with pytest.raises(InputError, match=r"engine must be omitted for diagnostic studies.*; got 'ensemble'"):
        choose_variant(asked, engine="ensemble", device="cpu", is_imported=False)
    with pytest.raises(UnknownNameError, match="precision must be one of"):
        choose_variant(asked, engine=None, device="cpu", is_imported=False, precision="half")
    with pytest.raises(InputError, match=r"precision must be used with a diagnostic study: .*; got primary"):
        choose_variant((STUDIES["primary"],), engine=None, device="cpu", is_imported=False, precision="float32")


def test_a_set_whose_home_lacks_what_the_study_needs_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"images/lfw\.npz must be .* with the array gender; got no file.*--labels"):
        run_studies(shrink_studies((STUDIES["faces"],)), settings_for(tmp_path))


def test_a_language_model_goes_with_texts_alone(tmp_path: Path) -> None:
    settings = RunSettings(tmp_path / "out", language_model="my-bert")
    with pytest.raises(InputError, match="language_model must be omitted for studies without texts"):
        run_studies([STUDIES["primary"]], settings)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def make_maskless(folder: Path) -> Path:
    transformers, tokenizers = (pytest.importorskip(name) for name in ("transformers", "tokenizers"))
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"fever": 0, "?": 1}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return folder


def make_broken(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfever\n")
    (folder / "model.safetensors").write_bytes(b"no weights")
    return folder


@pytest.mark.usefixtures("without_hub")
@pytest.mark.parametrize("executor", [LocalExecutor(1), RayExecutor(1)], ids=["local", "ray"])
def test_a_run_ends_before_its_first_job_where_the_language_model_cannot_be_had(
    tmp_path: Path, executor: Executor
) -> None:
    settings = RunSettings(out=tmp_path, executor=executor, language_model=str(tmp_path / "nowhere"))
    with pytest.raises(FileFormatError, match=r"nowhere must be a folder with a config\.json; got nothing there"):
        run_studies(shrink_studies(choose_studies("clinical")), settings)
    assert not multiprocessing.active_children()
    with ResultStore(tmp_path / RESULTS_FILE) as store:
        assert store.list_failures() == {}


@pytest.mark.usefixtures("without_hub")
def test_each_fault_of_a_language_model_has_its_own_line(tmp_path: Path) -> None:
    faults: list[tuple[str, type[RulerError], str]] = [
        (
            str(make_maskless(tmp_path / "maskless")),
            FileFormatError,
            "must have a mask and a padding token",
        ),
        (
            str(make_broken(tmp_path / "broken")),
            FileFormatError,
            "must hold the weights of the model that its config.json describes",
        ),
        ("nobody/no-such-model", DownloadError, "must be in the Hugging Face cache or in reach; got neither"),
    ]
    for name, kind, message in faults:
        with pytest.raises(kind, match=message) as caught:
            gather_inputs(["mtsamples"], name)
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_hub")
def test_a_language_model_is_asked_for_where_texts_are_read_alone() -> None:
    gather_inputs(["breast_cancer"], "nobody/no-such-model")
    with pytest.raises(RulerError, match="nobody/no-such-model"):
        gather_inputs(["breast_cancer", "mtsamples"], "nobody/no-such-model")


def test_a_resumed_run_shows_its_own_share(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    with show_run() as show:
        show(Progress(n_done=4, n_cells=6, share=0.5))
        show(Progress(n_done=5, n_cells=6, share=0.75))
    assert capsys.readouterr().err == "5 of 6 cells: 50%, about 0.0 min left\n"
