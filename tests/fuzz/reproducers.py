"""Hostile files that once took gigabytes, minutes or a traceback: each is written by a function, small, into a folder.

`python -m tests.fuzz.reproducers FOLDER` writes them all and runs each through the command line, in a process of its
own that may take 500 MB more than it starts with, and prints one JSON object per line of what came of it.
"""

import contextlib
import gc
import gzip
import io
import json
import os
import re
import resource
import sqlite3
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.fuzz.targets import image_bytes, transformer_files

Write = Callable[[Path], list[str]]
REPRODUCERS: dict[str, Write] = {}
ESCAPE = "\x1b[31mred\x9b0m"
MOST_BYTES = 500 << 20
_SIZES = {"forget": 30, "retain": 90, "held_out": 60}


def reproducer(write: Write) -> Write:
    """Add a function that writes files into a folder and returns the words of the command that reads them."""
    REPRODUCERS[write.__name__] = write
    return write


def audit(folder: Path) -> list[str]:
    """Sound sides beside the one that is hostile, and the command that reads them."""
    random = np.random.default_rng(0)
    for side, n in _SIZES.items():
        if not list(folder.glob(f"{side}*")):
            np.save(folder / f"{side}.npy", random.normal(size=(n, 4)))
    return ["audit", "--unlearned", str(folder), "--out", str(folder / "out")]


def write_parquet(path: Path, **columns: object) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), path)


@reproducer
def long_id_parquet(folder: Path) -> list[str]:
    ids = [str(i) for i in range(19_999)] + ["x" * 40_000]
    write_parquet(folder / "forget.parquet", id=ids, f0=np.arange(20_000.0))
    return audit(folder)


@reproducer
def long_id_pt(folder: Path) -> list[str]:
    import torch

    torch.save({"values": torch.ones(20_000, 1), "ids": ["a"] * 19_999 + ["x" * 40_000]}, folder / "forget.pt")
    return audit(folder)


def write_safetensors(path: Path, ends: list[int], text: bytes) -> None:
    from safetensors.numpy import save_file

    rows = np.ones((len(ends), 4), np.float32)
    save_file({"values": rows, "ids_utf8": np.frombuffer(text, np.uint8), "ids_ends": np.array(ends)}, path)


@reproducer
def backward_ends(folder: Path) -> list[str]:
    write_safetensors(folder / "forget.safetensors", [100_000, 0] * 20_000, b"x" * 100_000)
    return audit(folder)


@reproducer
def overlapping_tensors(folder: Path) -> list[str]:
    entry = {"dtype": "F32", "shape": [1000, 4], "data_offsets": [0, 16_000]}
    header = json.dumps({"values": entry, "losses": {**entry, "shape": [4000]}}).encode()
    (folder / "forget.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16_000))
    return audit(folder)


@reproducer
def repeated_text_parquet(folder: Path) -> list[str]:
    import pyarrow as arrow

    text = arrow.DictionaryArray.from_arrays(arrow.array([0] * 20_000, arrow.int32()), ["x" * 1_000_000])
    write_parquet(folder / "forget.parquet", id=text, f0=np.arange(20_000.0))
    return audit(folder)


@reproducer
def repeated_lists_parquet(folder: Path) -> list[str]:
    import pyarrow as arrow

    values = arrow.ListArray.from_arrays(np.arange(0, 2_000_001, 1_000_000, dtype=np.int32), np.zeros(2_000_000))
    write_parquet(folder / "forget.parquet", embedding=arrow.concat_arrays([values] * 10))
    return audit(folder)


def many_groups(folder: Path, column: object) -> list[str]:
    write_parquet(folder / "groups.parquet", group=column)
    return [*audit(folder), "--groups", str(folder / "groups.parquet")]


@reproducer
def groups_of_nothing(folder: Path) -> list[str]:
    import pyarrow as arrow

    return many_groups(folder, arrow.nulls(10**8))


@reproducer
def groups_of_one_letter(folder: Path) -> list[str]:
    import pyarrow as arrow

    return many_groups(folder, arrow.DictionaryArray.from_arrays(arrow.nulls(10**7, arrow.int8()).fill_null(0), ["a"]))


@reproducer
def groups_with_a_long_one(folder: Path) -> list[str]:
    (folder / "groups.csv").write_text("group\n" + "a\n" * 20_000 + "x" * 40_000)
    return [*audit(folder), "--groups", str(folder / "groups.csv")]


@reproducer
def groups_under_a_wide_header(folder: Path) -> list[str]:
    (folder / "groups.csv").write_text("group," + ",".join(map(str, range(20_000))) + "\n" + "a\n" * 20_000)
    return [*audit(folder), "--groups", str(folder / "groups.csv")]


def npy(magic: bytes, header: bytes) -> bytes:
    return b"\x93NUMPY" + magic + header.ljust(118) + b"\n"


@reproducer
def groups_of_no_letters(folder: Path) -> list[str]:
    header = b"{'descr': '<U0', 'fortran_order': False, 'shape': (2147483648,), }"
    (folder / "groups.npy").write_bytes(npy(b"\x01\x00\x77\x00", header))
    return [*audit(folder), "--groups", str(folder / "groups.npy")]


@reproducer
def ids_of_no_letters(folder: Path) -> list[str]:
    np.save(folder / "forget.npy", np.ones((30, 4)))
    header = b"{'descr': '<U0', 'fortran_order': False, 'shape': (9223372036854775807,), }"
    (folder / "forget.ids.npy").write_bytes(npy(b"\x01\x00\x77\x00", header))
    return audit(folder)


@reproducer
def header_of_gigabytes_npy(folder: Path) -> list[str]:
    (folder / "forget.npy").write_bytes(npy(b"\x03\x00\xff\xff\xff\x7f", b"{'descr'"))
    return audit(folder)


@reproducer
def packed_npz(folder: Path) -> list[str]:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 20, 64)})
    with (
        zipfile.ZipFile(folder / "forget.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("values.npy", "w") as stream,
    ):
        stream.write(header.getvalue())
        for _ in range(64):
            stream.write(bytes(8 << 20))
    return audit(folder)


@reproducer
def lzma_npz(folder: Path) -> list[str]:
    stream = io.BytesIO()
    np.save(stream, np.ones((30, 4)))
    with zipfile.ZipFile(folder / "forget.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("values.npy", stream.getvalue())
    return audit(folder)


@reproducer
def bytes_in_pt(folder: Path) -> list[str]:
    """A pickle that asks for two billion zero bytes, which torch allows."""
    pickled = b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    with zipfile.ZipFile(folder / "forget.pt", "w") as archive:
        archive.writestr("a/data.pkl", pickled)
        archive.writestr("a/version", "3\n")
        archive.writestr("a/byteorder", "little")
    return audit(folder)


def config(folder: Path, content: bytes) -> list[str]:
    (folder / "audit.toml").write_bytes(content)
    return ["audit", str(folder / "audit.toml"), "--out", str(folder / "out")]


@reproducer
def dotted_toml(folder: Path) -> list[str]:
    return config(folder, b"a" + b".a" * 100_000 + b" = 1")


@reproducer
def dotted_table_toml(folder: Path) -> list[str]:
    return config(folder, b"[a" + b".a" * 100_000 + b"]")


@reproducer
def deep_toml(folder: Path) -> list[str]:
    return config(folder, b"a = " + b"[" * 50_000 + b"]" * 50_000)


@reproducer
def huge_toml(folder: Path) -> list[str]:
    return config(folder, b"a = 1 # " + b"x" * (1 << 24))


@reproducer
def binary_toml(folder: Path) -> list[str]:
    return config(folder, b'[embeddings]\nunlearned = "\xff"')


@reproducer
def huge_seed(folder: Path) -> list[str]:
    return config(folder, b'[embeddings]\nunlearned = "."\n[settings]\nseed = ' + b"9" * 4000)


def study(folder: Path, content: bytes) -> list[str]:
    (folder / "study.toml").write_bytes(content)
    return ["reproduce", str(folder / "study.toml"), "--out", str(folder / "out")]


@reproducer
def binary_study(folder: Path) -> list[str]:
    return study(folder, b'[[study]]\nname = "\xff"')


@reproducer
def huge_seed_in_a_study(folder: Path) -> list[str]:
    from ruler.experiment.settings import format_studies
    from ruler.experiment.studies import STUDIES

    text = format_studies([STUDIES["primary"]])
    return study(folder, re.sub(r"(?m)^seeds = .*$", f"seeds = [{2**64}]", text, count=1).encode())


@reproducer
def dotted_study(folder: Path) -> list[str]:
    return study(folder, b"a" + b".a" * 100_000 + b" = 1")


def store(folder: Path, content: bytes) -> list[str]:
    (folder / "out").mkdir()
    (folder / "out" / "results.sqlite").write_bytes(content)
    return ["reproduce", "primary", "--datasets", "breast_cancer", "--seeds", "1", "--out", str(folder / "out")]


@reproducer
def no_sqlite(folder: Path) -> list[str]:
    return store(folder, b"no database\n" * 1000)


@reproducer
def foreign_sqlite(folder: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(folder / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
        connection.commit()
    return store(folder, (folder / "other.sqlite").read_bytes())


@reproducer
def endless_sqlite(folder: Path) -> list[str]:
    """A view in place of the table, whose rows never end."""
    from ruler.experiment.store import ResultStore

    with ResultStore(folder / "sound.sqlite") as sound, contextlib.closing(sqlite3.connect(":memory:")) as other:
        columns = [row[1] for row in sqlite3.connect(sound.path).execute("PRAGMA table_info(results)")]
        rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT " + ", ".join(
            f'i AS "{name}"' for name in columns
        )
        other.execute(f"CREATE VIEW results AS {rows} FROM n")
        other.execute("CREATE TABLE failures (key, error, details, finished_at)")
        other.commit()
        return store(folder, other.serialize())


@reproducer
def corrupt_sqlite(folder: Path) -> list[str]:
    from ruler.experiment.store import ResultStore

    ResultStore(folder / "sound.sqlite").close()
    content = bytearray((folder / "sound.sqlite").read_bytes())
    content[4096:8192] = b"\xa5" * 4096
    return store(folder, bytes(content))


def records(folder: Path, name: str, content: bytes) -> list[str]:
    import torch

    (folder / "mine.py").write_text("import torch\ndef build():\n    return torch.nn.Linear(4, 2)\n")
    torch.save(torch.nn.Linear(4, 2).state_dict(), folder / "model.pt")
    np.save(folder / "retain.npy", np.ones((9, 4), np.float32))
    (folder / name).write_bytes(content)
    text = (
        f'[models]\nfactory = "mine:build"\nunlearned = "model.pt"\n[data]\nforget = "{name}"\nretain = "retain.npy"\n'
    )
    return config(folder, text.encode())


@reproducer
def records_of_no_arrays(folder: Path) -> list[str]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("inputs.npy", b"no array at all")
    return records(folder, "forget.npz", stream.getvalue())


@reproducer
def records_of_a_newer_kind(folder: Path) -> list[str]:
    stream, array = io.BytesIO(), io.BytesIO()
    np.save(array, np.ones((3, 4)))
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("inputs.npy", array.getvalue().replace(b"NUMPY\x01", b"NUMPY\x09"))
    return records(folder, "forget.npz", stream.getvalue())


def transformer(folder: Path, changed: dict[str, bytes], forget: str = "forget.csv") -> list[str]:
    (folder / "model").mkdir()
    files = {name: content for name, content in transformer_files().items() if not name.endswith("index.json")}
    for name, content in {**files, **changed}.items():
        (folder / "model" / name).write_bytes(content)
    for side in ("forget", "retain"):
        if not (folder / f"{side}.csv").exists():
            (folder / f"{side}.csv").write_text("text\n" + "fever\ncough\n" * 9)
    text = f'[models]\nunlearned = "model"\n[data]\nforget = "{forget}"\nretain = "retain.csv"\n'
    return config(folder, text.encode())


def edited(**changes: object) -> dict[str, bytes]:
    content = json.loads(transformer_files()["config.json"])
    return {"config.json": json.dumps({**content, **changes}).encode()}


@reproducer
def a_million_layers(folder: Path) -> list[str]:
    return transformer(folder, edited(num_hidden_layers=10**6))


@reproducer
def a_billion_words(folder: Path) -> list[str]:
    return transformer(folder, edited(vocab_size=10**9))


@reproducer
def deep_config(folder: Path) -> list[str]:
    return transformer(folder, {"config.json": b'{"a":' * 100_000})


@reproducer
def index_outside(folder: Path) -> list[str]:
    index = {"weight_map": {"classifier.weight": "../../secret.safetensors"}}
    return transformer(folder, {"model.safetensors.index.json": json.dumps(index).encode()})


@reproducer
def index_of_pickles(folder: Path) -> list[str]:
    index = {"weight_map": {"classifier.weight": "pytorch_model.bin"}}
    return transformer(folder, {"model.safetensors.index.json": json.dumps(index).encode()})


@reproducer
def broken_tokenizer(folder: Path) -> list[str]:
    return transformer(folder, {"tokenizer.json": b'{"version": "1.0", "model": {"type": "WordPiece", "vocab": 7}}'})


@reproducer
def long_text(folder: Path) -> list[str]:
    (folder / "forget.csv").write_text("text\n" + "fever " * 2_000_000)
    return transformer(folder, {})


def dataset(folder: Path, state: bytes, arrow_file: bytes) -> list[str]:
    (folder / "texts").mkdir()
    (folder / "texts" / "state.json").write_bytes(state)
    (folder / "texts" / "data.arrow").write_bytes(arrow_file)
    return transformer(folder, {}, "texts")


def arrow_file(compression: str | None = None, **columns: object) -> bytes:
    import pyarrow as arrow

    stream, rows = io.BytesIO(), arrow.table(columns)
    with arrow.ipc.new_stream(
        stream, rows.schema, options=arrow.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(rows)
    return stream.getvalue()


_STATE = b'{"_data_files": [{"filename": "data.arrow"}]}'


@reproducer
def deep_state(folder: Path) -> list[str]:
    return dataset(folder, b"[" * 100_000, arrow_file(text=["a"]))


@reproducer
def packed_arrow(folder: Path) -> list[str]:
    return dataset(folder, _STATE, arrow_file("zstd", text=["x" * 1000] * 10**5))


@reproducer
def repeated_text_arrow(folder: Path) -> list[str]:
    import pyarrow as arrow

    text = arrow.DictionaryArray.from_arrays(arrow.array([0] * 20_000, arrow.int32()), ["x" * 1_000_000])
    return dataset(folder, _STATE, arrow_file(text=text))


@reproducer
def rows_of_nothing_arrow(folder: Path) -> list[str]:
    import pyarrow as arrow

    return dataset(folder, _STATE, arrow_file(text=arrow.nulls(10**9)))


@reproducer
def huge_png(folder: Path) -> list[str]:
    """An image that says it has 3.6 billion pixels."""
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    whole = image_bytes("PNG")
    huge = whole[:12] + header + struct.pack(">I", zlib.crc32(header)) + whole[33:]
    (folder / "pictures").mkdir()
    (folder / "pictures" / "a.png").write_bytes(huge)
    return transformer(folder, {}, "pictures")


@reproducer
def huge_prepared_images(folder: Path) -> list[str]:
    (folder / "pictures").mkdir()
    (folder / "pictures" / "a.png").write_bytes(image_bytes("PNG"))
    processor = json.loads(transformer_files()["preprocessor_config.json"])
    processor["size"] = {"height": 200_000, "width": 200_000}
    return transformer(folder, {"preprocessor_config.json": json.dumps(processor).encode()}, "pictures")


@reproducer
def escapes_in_a_shard(folder: Path) -> list[str]:
    (folder / "forget").mkdir()
    (folder / "forget" / f"a{ESCAPE}.npy").write_bytes(b"no array")
    return audit(folder)


@reproducer
def escapes_in_a_column(folder: Path) -> list[str]:
    write_parquet(folder / "forget.parquet", **{f"a{ESCAPE}": ["x", "y"], "f0": [1.0, 2.0]})
    return audit(folder)


@reproducer
def escapes_in_a_layer(folder: Path) -> list[str]:
    np.savez(folder / "forget.npz", values=np.ones((30, 4)), layer=np.array(ESCAPE))
    np.savez(folder / "retain.npz", values=np.ones((30, 4)), layer=np.array("other"))
    return audit(folder)


@reproducer
def escapes_in_toml(folder: Path) -> list[str]:
    return config(folder, b'"a\\u001b[31m" = 1')


@reproducer
def a_name_of_thousands(folder: Path) -> list[str]:
    return config(folder, b'[embeddings]\nunlearned = "' + b"x" * 5000 + b'"')


@reproducer
def a_home_of_nobody(folder: Path) -> list[str]:
    return config(folder, b'[embeddings]\nunlearned = "~nobody-has-this-name/rows"')


@reproducer
def text_that_is_no_text(folder: Path) -> list[str]:
    import pyarrow as arrow

    text = arrow.array([b"\xff\xfe"] * 30).cast(arrow.string(), safe=False)
    write_parquet(folder / "groups.parquet", group=text)
    return [*audit(folder), "--groups", str(folder / "groups.parquet")]


@reproducer
def a_footer_that_ends_pyarrow(folder: Path) -> list[str]:
    """Statistics of a size that pyarrow checks where it cannot raise: it ends the process."""
    write_parquet(folder / "forget.parquet", embedding=[[1.0, 2.0]] * 30)
    content = (folder / "forget.parquet").read_bytes()
    (folder / "forget.parquet").write_bytes(content.replace(b"\x3c\x29\x26\x3c", b"\x3c\x39\x26\x3c"))
    return audit(folder)


@reproducer
def unfolding_table(folder: Path) -> list[str]:
    """A CSV of a gigabyte in a megabyte, as labels of faces."""
    with gzip.open(folder / "labels.csv.gz", "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(b"0,0\n" * (1 << 20))
    return ["data", "fetch", "lfw", "--labels", str(folder / "labels.csv.gz")]


def run_alone(words: list[str], folder: Path) -> dict[str, object]:
    """Run a command in a child that may take 500 MB more than this process has; what came of it."""
    from ruler.cli import main

    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        child = os.fork()
        if child == 0:
            (folder / "start").write_text(Path("/proc/self/statm").read_text())
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + MOST_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            sys.argv = ["ruler", *words]
            status = 1
            try:
                main()
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, status, used = os.wait4(child, 0)
    n_bytes = int((folder / "start").read_text().split()[1]) * resource.getpagesize()
    said = (folder / "stderr").read_bytes().decode(errors="surrogateescape")
    return {
        "status": os.waitstatus_to_exitcode(status),
        "cpu_s": used.ru_utime + used.ru_stime,
        "more_bytes": max(0, (used.ru_maxrss << 10) - n_bytes),
        "stdout": (folder / "stdout").read_bytes().decode(errors="surrogateescape"),
        "stderr": said,
    }


def main(root: Path) -> None:
    """Write and run all."""
    from ruler.core.readers.tables import read_table

    os.environ["RULER_CACHE"] = os.environ["RULER_DATA"] = str(root / "cache")
    transformer_files()  # loads torch and transformers, which are no part of what is measured
    import ruler.auditing.models
    import ruler.embeddings.bundle.loading
    import ruler.experiment.run  # noqa: F401
    from ruler.cli.app import make_app

    make_app()
    (root / "a.csv").write_text("a,b\n1,2\n")
    read_table(root / "a.csv")
    gc.freeze()  # or each child would copy what the collector of its own looks through
    for name, write in REPRODUCERS.items():
        folder = root / name
        folder.mkdir()
        words = write(folder)
        print(json.dumps({"name": name, **run_alone(words, folder)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
