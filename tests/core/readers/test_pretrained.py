"""Folders of strangers: what is sound loads, what is not is told in a line, and nothing in them runs."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from ruler.core.errors import CheckpointError, FileFormatError
from ruler.core.readers.pretrained import load_pretrained, load_tokenizer

transformers = pytest.importorskip("transformers")


def edit_config(folder, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_model_comes_back_as_it_was_saved(bert_folder) -> None:
    model, lacking = load_pretrained(bert_folder)
    assert type(model) is transformers.BertForMaskedLM
    assert not lacking
    assert not model.training
    saved = load_file(bert_folder / "model.safetensors")
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in saved.items())


def test_half_precision_is_widened_exactly(bert_folder) -> None:
    path = bert_folder / "model.safetensors"
    halves = {name: value.half() for name, value in load_file(path).items()}
    save_file(halves, path, metadata={"format": "pt"})
    edit_config(bert_folder, dtype="float16")
    model, _ = load_pretrained(bert_folder)
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    name = "bert.encoder.layer.0.output.dense.weight"
    assert torch.equal(model.state_dict()[name], halves[name].float())


def test_weights_that_are_lacking_are_named(bert_folder) -> None:
    path = bert_folder / "model.safetensors"
    rest = {name: value for name, value in load_file(path).items() if "transform.dense" not in name}
    save_file(rest, path, metadata={"format": "pt"})
    _, lacking = load_pretrained(bert_folder)
    assert lacking == {"cls.predictions.transform.dense.weight", "cls.predictions.transform.dense.bias"}


def test_loading_is_silent_and_leaves_the_settings_of_transformers(bert_folder, capfd) -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load_pretrained(bert_folder, "AutoModelForSequenceClassification")
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_code_in_the_folder_never_runs(bert_folder, tmp_path) -> None:
    trap = tmp_path / "ran"
    code = f"from pathlib import Path\nPath({str(trap)!r}).touch()\n"
    (bert_folder / "modeling_trap.py").write_text(code + "class Trap: pass\n")
    edit_config(
        bert_folder,
        model_type="trap",
        architectures=["Trap"],
        auto_map={"AutoConfig": "modeling_trap.Trap", "AutoModelForMaskedLM": "modeling_trap.Trap"},
    )
    with pytest.raises(FileFormatError, match="must hold a sound transformers model; it cannot be read"):
        load_pretrained(bert_folder)
    assert not trap.exists()


def test_kernels_of_the_hub_are_not_asked_for(bert_folder) -> None:
    edit_config(bert_folder, attn_implementation="somebody/kernel")
    model, _ = load_pretrained(bert_folder)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("names", [[], ["BertForMaskedLM", "BertModel"], ["Pipeline"], ["os"], ["NoSuchModel"]])
def test_only_models_of_transformers_are_built(bert_folder, names) -> None:
    edit_config(bert_folder, architectures=names)
    with pytest.raises(FileFormatError, match=r"must name one model of transformers .* Code that came with a model"):
        load_pretrained(bert_folder)


def test_what_is_no_folder_of_a_model_is_told(tmp_path) -> None:
    with pytest.raises(FileFormatError, match=r"must be a folder with a config.json; got nothing there\. Save"):
        load_pretrained(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match=r"must be a folder with a config.json; got none in it"):
        load_pretrained(tmp_path)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(FileFormatError, match=r"must be a folder with a config.json; got a file"):
        load_pretrained(tmp_path / "model.safetensors")


def test_pickled_weights_are_refused(bert_folder, tiny_config) -> None:
    (bert_folder / "model.safetensors").unlink()
    with pytest.raises(FileFormatError, match=r"must hold its weights as \.safetensors; got no weights"):
        load_pretrained(bert_folder)
    torch.save(transformers.BertForMaskedLM(tiny_config).state_dict(), bert_folder / "pytorch_model.bin")
    with pytest.raises(FileFormatError, match=r"must hold its weights as \.safetensors; got pytorch_model\.bin"):
        load_pretrained(bert_folder)


def write_shards(folder, names) -> None:
    """Split the weights as save_pretrained does with large models, and name the parts as told."""
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, name in enumerate(names):
        part = dict(sorted(whole.items())[number :: len(names)])
        weight_map |= dict.fromkeys(part, str(name))
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(part, path) if path.suffix == ".bin" else save_file(part, path, metadata={"format": "pt"})
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_weights_in_several_files_are_read(bert_folder) -> None:
    whole = load_file(bert_folder / "model.safetensors")
    write_shards(bert_folder, ["a.safetensors", "b.safetensors"])
    model, lacking = load_pretrained(bert_folder)
    assert not lacking
    assert all(torch.equal(model.state_dict()[name], value) for name, value in whole.items())


@pytest.mark.parametrize("place", ["../b.safetensors", "sub/../../b.safetensors", "absolute", "link"])
def test_an_index_that_leaves_its_folder_is_refused(bert_folder, tmp_path, place) -> None:
    outside = tmp_path / "b.safetensors"
    name = {"absolute": str(outside), "link": "b.safetensors"}.get(place, place)
    (bert_folder / "sub").mkdir()
    write_shards(bert_folder, ["a.safetensors", name])
    if place == "link":
        (bert_folder / name).rename(outside)
        (bert_folder / name).symlink_to(outside)
    assert outside.is_file()
    with pytest.raises(FileFormatError, match=r"index\.json must name files of its own folder; got '.*b\.safetensors'"):
        load_pretrained(bert_folder)


def test_links_of_the_hubs_cache_are_followed(bert_folder, tmp_path) -> None:
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.parent.mkdir()
    bert_folder.rename(snapshot)
    write_shards(snapshot, ["a.safetensors", "b.safetensors"])
    (tmp_path / "blobs").mkdir()
    for path in list(snapshot.iterdir()):
        path.rename(tmp_path / "blobs" / path.name)
        path.symlink_to(f"../../blobs/{path.name}")
    assert not load_pretrained(snapshot)[1]


def test_an_index_of_pickled_weights_is_refused(bert_folder) -> None:
    write_shards(bert_folder, ["a.safetensors", "b.bin"])
    with pytest.raises(FileFormatError, match=r"must name \.safetensors files only; got 'b\.bin'"):
        load_pretrained(bert_folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_a_broken_index_is_told(bert_folder, text) -> None:
    (bert_folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"model\.safetensors\.index\.json must"):
        load_pretrained(bert_folder)


def test_a_configuration_cannot_name_other_weights(bert_folder) -> None:
    edit_config(bert_folder, transformers_weights="other.safetensors")
    assert not load_pretrained(bert_folder)[1]


def test_adapters_are_refused(bert_folder) -> None:
    (bert_folder / "adapter_config.json").write_text("{}")
    with pytest.raises(FileFormatError, match="must hold a whole model; got adapter_config"):
        load_pretrained(bert_folder)


def test_weights_of_another_shape_are_told(bert_folder) -> None:
    edit_config(bert_folder, intermediate_size=32)
    with pytest.raises(CheckpointError, match=r"shapes in its config\.json; got bert.* of \(.*24.* instead of \(.*32"):
        load_pretrained(bert_folder)


def test_broken_files_are_told(bert_folder) -> None:
    (bert_folder / "model.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(FileFormatError, match="must hold a sound transformers model; it cannot be read"):
        load_pretrained(bert_folder)
    (bert_folder / "config.json").write_text("{")
    with pytest.raises(FileFormatError, match="must be a sound JSON file; it cannot be read"):
        load_pretrained(bert_folder)


def test_settings_return_after_an_error(bert_folder) -> None:
    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    (bert_folder / "config.json").write_text("[]")
    with pytest.raises(FileFormatError, match="must hold a JSON object"):
        load_pretrained(bert_folder)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.mark.parametrize("kind", ["bert", "roberta", "deberta-v2"])
def test_a_tokenizer_is_never_made_up(bert_folder, kind) -> None:
    edit_config(bert_folder, model_type=kind)
    with pytest.raises(FileFormatError, match=r"must hold a tokenizer; got none of .*tokenizer\.json.* Save it there"):
        load_tokenizer(bert_folder)


def test_broken_tokenizer_is_told(bert_folder) -> None:
    (bert_folder / "tokenizer.json").write_text("{")
    with pytest.raises(FileFormatError, match="must hold a sound tokenizer; it cannot be read"):
        load_tokenizer(bert_folder)


def test_tokenizer_reads_its_vocabulary(bert_folder) -> None:
    (bert_folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfever\n")
    assert load_tokenizer(bert_folder)("Fever cough").input_ids == [2, 5, 1, 3]
