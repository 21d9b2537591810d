"""The hub's cache is used, older weights are converted, and no network means an answer at once."""

import os
import shutil
import time
import urllib.error

import pytest
import torch
from safetensors.torch import load_file

from ruler.core.errors import FileFormatError
from ruler.models import language_models
from ruler.models.language_models import can_reach_hub, find_hub_model, load_masked_language_model

transformers = pytest.importorskip("transformers")
NAME = "someone/bert"


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "ruler"))
    monkeypatch.setattr(language_models, "can_reach_hub", lambda: False)


@pytest.fixture
def cached(bert_folder, monkeypatch):
    """The hub's client, with one model in its cache."""

    def snapshot_download(name, *, allow_patterns, local_files_only):
        assert local_files_only, "the network must be left alone"
        if name != NAME:
            raise FileNotFoundError(name)
        return str(bert_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    return bert_folder


def pickle_weights(folder) -> dict:
    state = load_file(folder / "model.safetensors")
    # the decoder is tied to the embeddings, and older files hold both
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"]
    torch.save(state, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return state


def test_model_in_the_cache_is_found(cached) -> None:
    assert find_hub_model(NAME) == cached
    assert find_hub_model("someone/else") is None


def test_real_client_finds_nothing_in_an_empty_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert find_hub_model("nobody/no-such-model") is None
    assert find_hub_model("no name that a hub could have") is None


def test_older_weights_are_converted_once(cached) -> None:
    state = pickle_weights(cached)
    folder = find_hub_model(NAME)
    assert folder is not None
    assert folder != cached
    model, has_head = load_masked_language_model(folder)
    assert has_head
    name = "bert.encoder.layer.1.output.dense.weight"
    assert torch.equal(model.state_dict()[name], state[name])
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert find_hub_model(NAME) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


def test_pickled_code_is_not_run(cached, capfd) -> None:
    class Trap:
        def __reduce__(self):
            return (print, ("ran",))

    (cached / "model.safetensors").unlink()
    torch.save({"weight": Trap()}, cached / "pytorch_model.bin")
    with pytest.raises(FileFormatError, match=r"pytorch_model\.bin must hold tensors only; .* which is not run"):
        find_hub_model(NAME)
    assert "ran" not in capfd.readouterr().out


@pytest.mark.parametrize("content", ["nothing", "half", "list", "numbers"])
def test_broken_weights_are_refused_in_one_line(cached, content) -> None:
    pickle_weights(cached)
    path = cached / "pytorch_model.bin"
    if content in ("nothing", "half"):
        path.write_bytes(b"" if content == "nothing" else path.read_bytes()[: path.stat().st_size // 2])
    else:
        torch.save([torch.ones(1)] if content == "list" else {1: torch.ones(1)}, path)
    with pytest.raises(FileFormatError, match=r"pytorch_model\.bin must hold tensors only"):
        find_hub_model(NAME)
    assert not list(cached.parent.glob("ruler/language-models/*/*"))


def test_two_processes_that_convert_at_once_end_with_one_copy(cached, monkeypatch) -> None:
    pickle_weights(cached)
    (cached / "spiece.model").write_bytes(b"words")
    replace = os.replace

    def come_second(source, target) -> None:
        shutil.copytree(source, target)
        replace(source, target)

    monkeypatch.setattr("os.replace", come_second)
    folder = find_hub_model(NAME)
    assert (folder / "spiece.model").read_bytes() == b"words"
    assert [path.name for path in folder.parent.iterdir()] == [cached.name]


def test_cache_without_weights_is_no_model(cached) -> None:
    (cached / "model.safetensors").unlink()
    assert find_hub_model(NAME) is None


def test_hub_in_reach_is_asked(bert_folder, monkeypatch) -> None:
    asked = []

    def snapshot_download(name, *, allow_patterns, local_files_only):
        asked.append(local_files_only)
        if local_files_only:
            raise FileNotFoundError(name)
        return str(bert_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.setattr(language_models, "can_reach_hub", lambda: True)
    assert find_hub_model(NAME) == bert_folder
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("error", "expected"),
    [(urllib.error.HTTPError("", 403, "no", {}, None), True), (urllib.error.URLError("down"), False), (None, True)],
)
def test_reach_is_what_the_endpoint_answers(error, expected, monkeypatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)

    class Answer:
        def close(self) -> None:
            pass

    def urlopen(request, timeout):
        assert timeout <= 5
        if error is not None:
            raise error
        return Answer()

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    assert can_reach_hub() is expected
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert can_reach_hub() is False


def test_endpoint_that_is_not_there_is_given_up_at_once(monkeypatch) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    start = time.monotonic()
    assert can_reach_hub() is False
    assert time.monotonic() - start < 6
