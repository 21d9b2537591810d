"""Files of arrays: npy, npz, pt, safetensors."""

import io
import json
import zipfile

import numpy as np
import pyarrow as arrow
import pytest
import torch
from pyarrow import parquet
from safetensors.numpy import load_file, save_file

from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings import load_embeddings, save_embeddings


def test_brain_floats_become_float32(tmp_path):
    from safetensors.torch import save_file as save_tensors

    values = torch.randn(3, 2).bfloat16()
    save_tensors({"values": values}, tmp_path / "a.safetensors")
    torch.save(values, tmp_path / "a.pt")
    for ending in ("safetensors", "pt"):
        np.testing.assert_array_equal(load_embeddings(tmp_path / f"a.{ending}").values, values.float().numpy())


def test_our_safetensors_are_read_by_the_library(tmp_path):
    save_embeddings(Embeddings(np.eye(3, dtype=np.float32), ["ä", "", "b"], "fc"), tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found["values"], np.eye(3))
    assert found["ids_utf8"].tobytes() == "äb".encode()


def test_unaligned_safetensors_are_copied(tmp_path):
    header = json.dumps({"values": {"dtype": "F64", "shape": [1, 2], "data_offsets": [0, 16]}}).encode()
    header += b" " * (3 - len(header) % 8)
    content = len(header).to_bytes(8, "little") + header + np.array([1.0, 2.0]).tobytes()
    (tmp_path / "a.safetensors").write_bytes(content)
    found = load_embeddings(tmp_path / "a.safetensors").values
    assert found.tolist() == [[1.0, 2.0]]
    assert found.flags.aligned


def test_pt_that_needs_pickle_says_what_to_do(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "a.pt")
    with pytest.raises(FileFormatError, match=r"must hold tensors only.*Save a tensor or a state dict"):
        load_embeddings(tmp_path / "a.pt")


def test_decompression_bombs_are_refused_before_unpacking(tmp_path):
    zeros = np.zeros((1 << 12, 1 << 12), np.float32)
    np.savez_compressed(tmp_path / "a.npz", values=zeros)
    torch.save(torch.zeros(1).expand(1 << 14, 1 << 12), tmp_path / "c.pt")
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", zeros.tobytes())
    constant = arrow.table({"embedding": arrow.FixedSizeListArray.from_arrays(arrow.array(zeros.reshape(-1)), 1 << 12)})
    parquet.write_table(constant, tmp_path / "d.parquet")
    for file in sorted(tmp_path.iterdir()):
        assert file.stat().st_size < 300_000
        with pytest.raises(FileFormatError, match="must not unfold to more than 100 times its size; it claims"):
            load_embeddings(file)


def npz_with_header(path, shape):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("values.npy", header.getvalue() + bytes(8))


def test_claims_that_the_data_do_not_bear_out_are_refused(tmp_path):
    npz_with_header(tmp_path / "a.npz", (1 << 40, 1 << 20))
    with pytest.raises(FileFormatError, match=r"as many numbers as it claims; entry 'values\.npy' does not"):
        load_embeddings(tmp_path / "a.npz")


def safetensors(path, header, data=bytes(16)):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 12]}, "a tensor's size and offsets disagree"),
        ({"dtype": "F32", "shape": [2, 2], "data_offsets": [-16, 0]}, "a tensor's size and offsets disagree"),
        ({"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]}, "a tensor's size and offsets disagree"),
        ({"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}, "cannot be read: .*mmap length"),
        ({"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]}, "must hold tensors of .*; got 'F8_E4M3'"),
        ({"dtype": "F32", "shape": [0, 2], "data_offsets": [0, 0]}, "must not be empty"),
        ({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, "must be 2-D"),
        ({"dtype": "F32"}, "cannot be read"),
        ([], "cannot be read"),
    ],
)
def test_unsound_safetensors_headers_are_refused(tmp_path, entry, message):
    safetensors(tmp_path / "a.safetensors", {"values": entry})
    with pytest.raises(FileFormatError, match=message):
        load_embeddings(tmp_path / "a.safetensors")


def test_endless_safetensors_header_is_refused(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 8 + b"{}")
    with pytest.raises(FileFormatError, match="its header is longer than the file"):
        load_embeddings(tmp_path / "a.safetensors")


def test_archive_needs_one_matrix(tmp_path):
    np.savez(tmp_path / "a.npz", first=np.eye(2), second=np.eye(2))
    with pytest.raises(FileFormatError, match="must hold one 2-D array, or name it 'values'; got 2 of them among 2"):
        load_embeddings(tmp_path / "a.npz")
    save_file({f"layer{i}": np.eye(2) for i in range(10)}, tmp_path / "a.safetensors")
    with pytest.raises(FileFormatError, match=r"got 10 of them among 10 entries: 'layer0', .*'layer7', \.\.\.\."):
        load_embeddings(tmp_path / "a.safetensors")


def test_safetensors_entries_are_named_once(tmp_path):
    entry = '"values": {"dtype": "F32", "shape": [1, 2], "data_offsets": [%d, %d]}'
    header = ("{" + entry % (0, 8) + ", " + entry % (8, 16) + "}").encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(FileFormatError, match="its header names an entry twice"):
        load_embeddings(tmp_path / "a.safetensors")
