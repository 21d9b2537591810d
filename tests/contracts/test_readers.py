"""Every format of embedding files keeps the contract, and the contract finds those that do not."""

import json

import numpy as np
import pytest

from ruler.core.registry import Registry
from ruler.embeddings import files
from ruler.embeddings.formats import Format, Opened, beside_of
from ruler.testing.readers import check_format

pytest.importorskip("torch")
pytest.importorskip("pyarrow")


@pytest.mark.parametrize("ending", files.FORMATS)
def test_ours_keep_the_contract(ending, tmp_path):
    check_format(ending, tmp_path, keeps_beside=ending != ".npy")


def load_json(path, strata):
    content = json.loads(path.read_text())
    values = np.frombuffer(bytes.fromhex(content["bits"]), content["dtype"]).reshape(content["shape"])
    return Opened(values, {name: np.array(part) for name, part in content["beside"].items()}, content["layer"])


def save_json(embeddings, path):
    values = embeddings.values
    content = {"bits": values.tobytes().hex(), "dtype": values.dtype.str, "shape": values.shape}
    beside = {name: part.tolist() for name, part in beside_of(embeddings).items()}
    path.write_text(json.dumps({**content, "beside": beside, "layer": embeddings.layer}))


@pytest.fixture
def formats(monkeypatch):
    """The table of formats, as it would be in a process where somebody adds to it."""
    table = Registry("ending", dict(files.FORMATS), type=Format)
    monkeypatch.setattr("ruler.embeddings.files.FORMATS", table)
    monkeypatch.setattr("ruler.testing.readers.FORMATS", table)
    return table


def test_a_users_format_keeps_it(formats, tmp_path):
    formats.register(".json", Format(load_json, save_json, load_json))
    check_format(".json", tmp_path)


def _rounded(path, strata):
    opened = load_json(path, strata)
    return Opened(opened.values.round(3), opened.beside, opened.layer)


def _nameless(path, strata):
    opened = load_json(path, strata)
    return Opened(opened.values, {**opened.beside, "ids": np.arange(len(opened.values))}, opened.layer)


def _without_losses(path, strata):
    opened = load_json(path, strata)
    return Opened(opened.values, {name: part for name, part in opened.beside.items() if name != "losses"}, opened.layer)


def _trusting(path, strata):
    try:
        return load_json(path, strata)
    except ValueError:
        return Opened(np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (_rounded, "must give back rows .* to the bit"),
        (_nameless, "must keep ids"),
        (_without_losses, "must keep losses"),
        (_trusting, r"\.json must refuse its first 1 of"),
    ],
)
def test_those_that_break_it_are_found(formats, tmp_path, load, message):
    formats.register(".json", Format(load, save_json))
    with pytest.raises(AssertionError, match=message):
        check_format(".json", tmp_path)


def test_an_unknown_ending_is_told(tmp_path):
    with pytest.raises(AssertionError, match=r"\.h5 must be registered in FORMATS"):
        check_format(".h5", tmp_path)
