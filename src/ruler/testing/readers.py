"""What every format of embedding files must do, ours and yours.

Write in your own tests::

    from ruler.testing.readers import check_format

    def test_contract(tmp_path):
        check_format(".mine", tmp_path)

It asserts that rows come back to the bit, whole, in slices and by number; that ids, labels, losses, groups, strata and
the layer are kept; that several files are read as one matrix, where the format can; and that truncated, empty and
foreign files end in a `FileFormatError` that names the file.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings.files import FORMATS, load_embeddings, save_embeddings

_BESIDE = ("labels", "losses", "groups", "strata")
_FOREIGN = {"an empty file": b"", "text": b"no,embeddings\n1,2\n", "zeros": bytes(4096), "a pickle": b"\x80\x04N."}


def check_format(ending: str, folder: Path, *, keeps_beside: bool = True) -> None:
    """Assert that a format keeps the contract.

    Args:
        ending: Its key in `FORMATS`, such as ``".npy"``.
        folder: An empty folder to write to.
        keeps_beside: It has room for labels, losses, groups, strata and the layer.

    Raises:
        AssertionError: It does not.

    Example:
        >>> import tempfile
        >>> check_format(".npz", Path(tempfile.mkdtemp()))
    """
    assert ending in FORMATS, f"{ending} must be registered in FORMATS"
    for dtype in (np.float16, np.float32, np.float64):
        for shape in ((1, 1), (1, 5), (40, 7)):
            _check_rows(_make(shape, dtype), folder / f"rows-{np.dtype(dtype).name}-{shape[0]}-{shape[1]}{ending}")
    rows = _make((12, 5), np.float32)
    _check_beside(replace(rows, ids=np.arange(12) * 10), folder / f"numbered{ending}", keeps_beside=keeps_beside)
    names = np.array([f"record {row}, ä" for row in range(12)])
    _check_beside(replace(rows, ids=names), folder / f"named{ending}", keeps_beside=keeps_beside)
    _check_shards(ending, folder / f"shards{ending}")
    _check_faults(rows, folder / f"broken{ending}")
    drafts = [path.name for path in folder.rglob(".*")]
    assert not drafts, f"{ending} must leave no drafts behind; got {drafts}"


def _make(shape: tuple[int, int], dtype: type) -> Embeddings:
    rng = np.random.default_rng(0)
    n = shape[0]
    return Embeddings(
        rng.normal(size=shape).astype(dtype),
        layer="net.4:input",
        labels=rng.integers(3, size=n),
        losses=rng.uniform(size=n),
        groups=np.array([f"person {row // 2}" for row in range(n)]),
        strata=rng.integers(2, size=n),
    )


def _check_rows(rows: Embeddings, path: Path) -> None:
    save_embeddings(rows, path)
    found, values = load_embeddings(path).values, rows.values
    assert (found.shape, found.dtype) == (values.shape, values.dtype), f"{path.name} must keep its shape and precision"
    chosen = np.array([len(values) - 1, 0])
    for part in (slice(None), slice(1, 3), slice(5, 5), chosen):
        is_same = np.ascontiguousarray(found[part]).tobytes() == np.ascontiguousarray(values[part]).tobytes()
        assert is_same, f"{path.name} must give back rows {part} to the bit"
    save_embeddings(replace(rows, values=values[:1], **dict.fromkeys(("ids", *_BESIDE))), path)  # over the old one
    assert len(load_embeddings(path)) == 1, f"{path.name} must replace the file that was there"


def _check_beside(rows: Embeddings, path: Path, *, keeps_beside: bool) -> None:
    save_embeddings(rows, path)
    found = load_embeddings(path)
    for name in ("ids", *(_BESIDE if keeps_beside else ())):
        before, after = getattr(rows, name), getattr(found, name)
        assert np.array_equal(before, after), f"{path.name} must keep {name}; got {after!r:.200}"
    assert found.layer == (rows.layer if keeps_beside else None), f"{path.name} must keep the layer; got {found.layer}"


def _check_shards(ending: str, folder: Path) -> None:
    if FORMATS[ending].open_rows is None:
        return
    folder.mkdir()
    rows = _make((10, 4), np.float32)
    for number, part in enumerate((slice(0, 6), slice(6, 10))):
        names = np.array([f"record {row}" for row in range(10)])[part]
        save_embeddings(Embeddings(rows.values[part], ids=names), folder / f"{number}{ending}")
    found = load_embeddings(folder)
    for chosen in (slice(None), slice(4, 8), np.array([9, 0, 5])):
        is_same = np.array_equal(found.values[chosen], rows.values[chosen])
        assert is_same, f"{ending} must give rows {chosen} of several files as one matrix"
    assert found.ids[6] == "record 6", f"{ending} must keep the ids of several files"


def _check_faults(rows: Embeddings, path: Path) -> None:
    save_embeddings(rows, path)
    whole = path.read_bytes()
    for length in sorted({1, 7, len(whole) // 4, len(whole) // 2, len(whole) - 1}):
        _check_refused(whole[:length], path, f"its first {length} of {len(whole)} bytes")
    for name, content in _FOREIGN.items():
        _check_refused(content, path, name)
    path.unlink()
    _check_refused(None, path, "nothing there")


def _check_refused(content: bytes | None, path: Path, what: str) -> None:
    if content is not None:
        path.write_bytes(content)
    said = None
    try:
        load_embeddings(path)
    except FileFormatError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{path.suffix} must refuse {what} with a FileFormatError; got {error!r}") from error
    assert said is not None, f"{path.suffix} must refuse {what}; it was read"
    assert str(path) in said, f"{path.suffix} must name the file in its error for {what}; got: {said}"
    assert "\n" not in said, f"{path.suffix} must say what is wrong in one line; got: {said}"
