"""What cannot be loaded is said once, in one line, before any worker starts."""

import json
import multiprocessing
from pathlib import Path

import pytest

from ruler.core.cluster import ClusterSettings
from ruler.core.errors import DownloadError, FileFormatError, RulerError
from ruler.experiment.inputs import gather_inputs
from ruler.experiment.run import RESULTS_FILE, RunSettings, run_studies
from ruler.experiment.store import ResultStore
from ruler.experiment.studies import choose_studies, shrink_studies

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")


@pytest.fixture(autouse=True)
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def make_maskless(folder: Path) -> Path:
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


@pytest.mark.parametrize("cluster", [None, ClusterSettings()], ids=["local", "ray"])
def test_a_run_ends_before_its_first_job_where_the_language_model_cannot_be_had(
    tmp_path: Path, cluster: ClusterSettings | None
) -> None:
    settings = RunSettings(out=tmp_path, n_jobs=1, language_model=str(tmp_path / "nowhere"), cluster=cluster)
    with pytest.raises(FileFormatError, match=r"nowhere must be a folder with a config\.json; got nothing there"):
        run_studies(shrink_studies(choose_studies("clinical")), settings)
    assert not multiprocessing.active_children()
    with ResultStore(tmp_path / RESULTS_FILE) as store:
        assert store.list_failures() == {}


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
            "must hold a sound transformers model",
        ),
        ("nobody/no-such-model", DownloadError, "must be in the Hugging Face cache or in reach; got neither"),
    ]
    for name, kind, message in faults:
        with pytest.raises(kind, match=message) as caught:
            gather_inputs(["mtsamples"], name)
        assert "\n" not in str(caught.value)


def test_a_language_model_is_asked_for_where_texts_are_read_alone() -> None:
    gather_inputs(["breast_cancer"], "nobody/no-such-model")
