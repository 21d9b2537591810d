"""Every reader of files that others made, with small sound files to start from."""

import contextlib
import gzip
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.mutate import GZIP, PNG, SAFETENSORS, ZIP, Container

Files = dict[str, bytes]


@dataclass(frozen=True)
class Target:
    """One reader.

    Args:
        files: Sound ones, by name, that are written into a folder.
        read: Called with that folder.
        changed: Names of the files that are changed, one at a time; by default all.
        containers: By name, how the inside of a file is changed; half of the changes are blind all the same.
        repair: Called with all files after a change, so that hashes agree.
    """

    files: Files
    read: Callable[[Path], object]
    changed: tuple[str, ...] = ()
    containers: Mapping[str, Container] = field(default_factory=dict)
    repair: Callable[[Files], Files] | None = None


TARGETS: dict[str, Callable[[], Target]] = {}


def target(build: Callable[[], Target]) -> Callable[[], Target]:
    """Add a target to the table under the name of the function that builds it."""
    TARGETS[build.__name__] = cache(build)
    return build


def collect(write: Callable[[Path], object]) -> Files:
    """The files that a function writes into a folder, by name."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }


def make_rows(n: int = 6) -> Any:
    from ruler.core.types import Embeddings

    values = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    return Embeddings(
        values, ids=[f"person {i}" for i in range(n)], layer="net.6", labels=np.arange(n) % 2, groups=list("aabbcc")[:n]
    )


def embeddings(ending: str, container: Container | None = None) -> Target:
    from ruler.embeddings.files import load_embeddings, save_embeddings

    files = collect(lambda folder: save_embeddings(make_rows(), folder / f"rows{ending}"))
    containers = {f"rows{ending}": container} if container else {}
    return Target(files, lambda folder: load_embeddings(folder / f"rows{ending}"), containers=containers)


@target
def embeddings_npy() -> Target:
    return embeddings(".npy")


@target
def embeddings_npz() -> Target:
    return embeddings(".npz", ZIP)


@target
def embeddings_parquet() -> Target:
    return embeddings(".parquet")


@target
def embeddings_safetensors() -> Target:
    return embeddings(".safetensors", SAFETENSORS)


@target
def embeddings_pt() -> Target:
    return embeddings(".pt", ZIP)


@target
def embeddings_old_pt() -> Target:
    import torch

    from ruler.embeddings.files import load_embeddings

    def write(folder: Path) -> None:
        content = {"values": torch.eye(4), "ids": list("abcd")}
        torch.save(content, folder / "rows.pt", _use_new_zipfile_serialization=False)

    return Target(collect(write), lambda folder: load_embeddings(folder / "rows.pt"))


@target
def embeddings_table() -> Target:
    import pyarrow as arrow
    from pyarrow import parquet

    from ruler.embeddings.files import load_embeddings

    table = arrow.table({"id": ["ann", "bob", "eve"], "f0": [1.0, 2.0, 3.0], "f1": [0.5, 0.25, 0.1], "age": ["x"] * 3})
    files = collect(lambda folder: parquet.write_table(table, folder / "rows.parquet", compression="none"))
    return Target(files, lambda folder: load_embeddings(folder / "rows.parquet", strata="age"))


def shards(endings: tuple[str, ...]) -> Target:
    from ruler.embeddings.files import load_embeddings, save_embeddings

    def write(folder: Path) -> None:
        for number, ending in enumerate(endings):
            save_embeddings(
                replace(make_rows(), ids=[f"{number} {i}" for i in range(6)]), folder / f"r{number}{ending}"
            )

    def read(folder: Path) -> object:
        found = load_embeddings(folder)
        return np.asarray(found.values[:]), found.ids

    return Target(collect(write), read)


@target
def shards_npy() -> Target:
    return shards((".npy", ".npy"))


@target
def shards_packed() -> Target:
    return shards((".parquet", ".safetensors"))


@target
def model_folder() -> Target:
    from ruler.embeddings.sides import load_model_folder

    def write(folder: Path) -> None:
        for side in ("forget", "retain", "held_out"):
            np.save(folder / f"{side}.npy", np.eye(4))
            np.save(folder / f"{side}_losses.npy", np.arange(4.0))
            np.save(folder / f"{side}_labels.npy", np.array(list("abcd")))

    return Target(collect(write), load_model_folder)


def groups(ending: str, write: Callable[[Path], object], container: Container | None = None) -> Target:
    from ruler.embeddings.bundle.loading import load_groups

    name = f"groups{ending}"
    files = collect(lambda folder: write(folder / name))
    return Target(files, lambda folder: load_groups(folder / name), containers={name: container} if container else {})


@target
def groups_csv() -> Target:
    return groups(".csv", lambda path: path.write_text("side,group\nforget,ann\nforget,bob\nretain,eve\n"))


@target
def groups_npy() -> Target:
    return groups(".npy", lambda path: np.save(path, np.array(["ann", "bob"])))


@target
def groups_npz() -> Target:
    return groups(".npz", lambda path: np.savez(path, forget=np.array(["ann", "bob"]), retain=np.arange(3)), ZIP)


@target
def groups_parquet() -> Target:
    import pyarrow as arrow
    from pyarrow import parquet

    table = arrow.table({"group": ["ann", "bob", "ann"], "side": ["forget", "forget", "retain"]})
    return groups(".parquet", lambda path: parquet.write_table(table, path))


@target
def records_npz() -> Target:
    from ruler.embeddings.bundle.records import load_records

    def write(folder: Path) -> None:
        np.savez(folder / "a.npz", inputs=np.eye(3), labels=np.arange(3), ids=np.array(list("abc")))

    return Target(collect(write), lambda folder: load_records(folder / "a.npz"), containers={"a.npz": ZIP})


@target
def rows_csv() -> Target:
    from ruler.core.readers.tables import read_rows

    files = {"a.csv": b'id,text,label\n1,"fever, cough",0\n2,rash,1\n3,"a ""b""",0\n'}
    return Target(files, lambda folder: read_rows(folder / "a.csv"))


@target
def rows_jsonl() -> Target:
    from ruler.core.readers.tables import read_rows

    files = {"a.jsonl": b'{"id": 1, "text": "fever", "label": 0}\n{"id": 2, "text": "rash \\u00e9", "label": 1}\n'}
    return Target(files, lambda folder: read_rows(folder / "a.jsonl"))


def table(name: str, content: bytes, container: Container | None = None) -> Target:
    from ruler.core.readers.tables import read_table

    return Target(
        {name: content}, lambda folder: read_table(folder / name), containers={name: container} if container else {}
    )


@target
def table_csv() -> Target:
    return table("a.csv", b"age,income,y\n31,1.5,no\n44,,yes\n28,7e3,no\n")


@target
def table_csv_gz() -> Target:
    return table("a.csv.gz", gzip.compress(b"age,income,y\n31,1.5,no\n44,,yes\n28,7e3,no\n"), GZIP)


@target
def table_parquet() -> Target:
    import pandas as pd

    stream = io.BytesIO()
    pd.DataFrame({"age": [31, 44], "name": ["a", None], "y": [True, False]}).to_parquet(stream)
    return table("a.parquet", stream.getvalue())


@target
def audit_toml() -> Target:
    from ruler.auditing.settings import AuditSettings
    from ruler.core.readers.pins import PinnedInputs
    from ruler.embeddings.bundle.config import list_places, read_config

    text = (
        'groups = "whose.csv"\n[embeddings]\nunlearned = "a"\noracle = ["b", "c"]\nstrata = "age"\n'
        "[settings]\nalpha = 0.05\nlimit = 0.2\nseed = 3\nn_permutations = 99\n"
    )
    models = '[models]\nfactory = "mine:build"\nunlearned = "a.pt"\nlayer = ["net.1"]\n'
    models += '[data]\nforget = "f.npy"\nretain = "r.npy"\n'

    def read(folder: Path) -> None:
        for name in ("a.toml", "b.toml"):
            PinnedInputs(list_places(read_config(folder / name, AuditSettings)[0], folder / "bundle"))

    return Target({"a.toml": text.encode(), "b.toml": models.encode()}, read)


@target
def study_toml() -> Target:
    from ruler.experiment.settings import format_studies, read_studies
    from ruler.experiment.studies import STUDIES

    text = format_studies([STUDIES["primary"]])
    return Target({"study.toml": text.encode()}, lambda folder: read_studies(folder / "study.toml"))


@cache
def saved_report() -> Files:
    from ruler.auditing.audit import audit
    from ruler.auditing.seal.signature import make_keys
    from ruler.auditing.settings import AuditSettings

    random = np.random.default_rng(0)
    unlearned, oracle = (tuple(random.normal(size=(n, 3)) for n in (8, 12, 10)) for _ in range(2))
    groups = {"forget": np.arange(8) // 2, "held_out": np.arange(10) // 2 + 9}
    report = audit(unlearned, oracle=oracle, groups=groups, settings=AuditSettings(n_permutations=99))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        private, public = make_keys(folder / "keys")
        report.save(folder / "report", sign_with=private)
        files = {path.name: path.read_bytes() for path in (folder / "report").iterdir()}
        return {**files, "key.pub": public.read_bytes()}


def read_report(folder: Path) -> object:
    from ruler.auditing.report.files import load_report

    report = load_report(folder)
    return str(report)


def rehash_records(files: Files) -> Files:
    content = json.loads(saved_report()["report.json"])
    content["records"]["sha256"] = hashlib.sha256(files["records.parquet"]).hexdigest()
    return {**files, "report.json": json.dumps(content).encode()}


@target
def report_json() -> Target:
    files = {name: saved_report()[name] for name in ("report.json", "records.parquet")}
    return Target(files, read_report, ("report.json",))


@target
def report_records() -> Target:
    files = {name: saved_report()[name] for name in ("report.json", "records.parquet")}
    return Target(files, read_report, ("records.parquet",), repair=rehash_records)


def sealed(*names: str) -> Target:
    """The parts of `ruler verify` that read a file before its hash is known to be right."""
    from ruler.auditing.seal.manifest import Manifest, read_canonical
    from ruler.auditing.seal.signature import Envelope, is_signed_by, load_public_key, open_envelope

    def read(folder: Path) -> object:
        key = load_public_key(folder / "key.pub")
        envelope = read_canonical(Envelope, folder / "seal.json")
        return read_canonical(Manifest, folder / "manifest.json"), open_envelope(envelope), is_signed_by(envelope, key)

    files = {name: saved_report()[name] for name in ("manifest.json", "seal.json", "key.pub")}
    return Target(files, read, names)


@target
def seal_manifest() -> Target:
    return sealed("manifest.json")


@target
def seal_envelope() -> Target:
    return sealed("seal.json")


@target
def seal_key() -> Target:
    return sealed("key.pub")


@target
def seal_folder() -> Target:
    from ruler.auditing.seal.check import check_report

    files = {name: content for name, content in saved_report().items() if name != "key.pub"}
    return Target(files, lambda folder: list(check_report(folder)))


@target
def results_sqlite() -> Target:
    from ruler.experiment.cell import Outcome
    from ruler.experiment.grid import Cell
    from ruler.experiment.rows import Provenance
    from ruler.experiment.store import ResultStore, load_results

    made_by = Provenance(device="cpu", ruler_version="0", commit=None, torch_version="2", machine="this")

    def write(folder: Path) -> None:
        with ResultStore(folder / "results.sqlite") as store:
            for seed in range(3):
                cell = Cell("primary", "adult", "scrub", 0.05, seed, 5e-4)
                store.add(Outcome(cell, {"n_forget": 12, "m1": 0.9}, 1.5), made_by)

    def read(folder: Path) -> object:
        for name in ("results.sqlite-wal", "results.sqlite-shm"):  # what another input left
            (folder / name).unlink(missing_ok=True)
        return load_results(folder / "results.sqlite")

    return Target({"results.sqlite": collect(write)["results.sqlite"]}, read)


def arrow_dataset() -> tuple[Files, Any]:
    import pyarrow as arrow

    features = {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": ["a", "b"], "_type": "ClassLabel"}}
    notes = {"huggingface": json.dumps({"info": {"features": features}})}
    rows = arrow.table({"text": ["fever", "rash", "cough"], "label": [0, 1, 0], "id": ["x", "y", "z"]})
    rows = rows.replace_schema_metadata(notes)
    stream = io.BytesIO()
    with arrow.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    state = {"_data_files": [{"filename": "data.arrow"}], "_split": "train", "_indices_data_files": None}
    return {"data.arrow": stream.getvalue(), "state.json": json.dumps(state).encode()}, rows


def read_texts(folder: Path) -> object:
    from ruler.core.readers.datasets import read_records

    return read_records(folder, "text")


@target
def dataset_arrow() -> Target:
    return Target(arrow_dataset()[0], read_texts, ("data.arrow",))


@target
def dataset_state() -> Target:
    return Target(arrow_dataset()[0], read_texts, ("state.json",))


@target
def dataset_notes() -> Target:
    """What `datasets` noted of the columns, changed inside a sound parquet file."""
    from pyarrow import parquet

    _, rows = arrow_dataset()

    def read(folder: Path) -> object:
        notes = (folder / "notes").read_bytes()
        parquet.write_table(rows.replace_schema_metadata({"huggingface": notes}), folder / "train-0.parquet")
        return read_texts(folder)

    return Target({"notes": rows.schema.metadata[b"huggingface"]}, read)


@target
def dataset_images() -> Target:
    import pyarrow as arrow
    from pyarrow import parquet

    from ruler.core.readers.arrays import decode_image
    from ruler.core.readers.datasets import read_records

    def read(folder: Path) -> None:
        for record in read_records(folder, "image"):
            decode_image(record["image"], "a")

    cell = {"bytes": image_bytes("PNG"), "path": None}
    rows = arrow.table({"image": [cell, cell], "label": [0, 1]})
    return Target(collect(lambda folder: parquet.write_table(rows, folder / "train-0.parquet")), read)


def image_bytes(form: str) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (6, 5, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, form, **({"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"} if form == "JPEG" else {}))
    return stream.getvalue()


def image_folder(name: str, form: str, containers: Mapping[str, Container]) -> Target:
    from ruler.core.readers.arrays import decode_image, list_images

    def read(folder: Path) -> None:
        for path in list_images(folder):
            decode_image(path.read_bytes(), str(path))

    return Target({name: image_bytes(form)}, read, containers=containers)


@target
def images_png() -> Target:
    return image_folder("a.png", "PNG", {"a.png": PNG})


@target
def images_jpeg() -> Target:
    return image_folder("a.jpg", "JPEG", {})


@cache
def transformer_files() -> Files:
    import torch
    import transformers

    from ruler.core.readers.pretrained import quiet_transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fever", "cough"]
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}

    def write(folder: Path) -> None:
        with quiet_transformers(), torch.random.fork_rng():
            config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=8, **sizes)
            transformers.BertForSequenceClassification(config).save_pretrained(folder)
            (folder / "vocab.txt").write_text("\n".join(words))
            transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
            transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)

    files = collect(write)
    names = ["classifier.weight"]
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model.safetensors")}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}


@target
def weights_index() -> Target:
    from ruler.core.readers.pretrained import check_weights

    return Target(transformer_files(), check_weights, ("model.safetensors.index.json",))


def pretrained(*changed: str) -> Target:
    from ruler.core.readers.pretrained import load_pretrained

    files = {name: content for name, content in transformer_files().items() if not name.endswith("index.json")}
    return Target(files, load_pretrained, changed, {"model.safetensors": SAFETENSORS})


@target
def transformer_config() -> Target:
    return pretrained("config.json")


@target
def transformer_weights() -> Target:
    return pretrained("model.safetensors")


@target
def transformer_tokenizer() -> Target:
    from ruler.core.readers.pretrained import load_tokenizer

    names = tuple(name for name in transformer_files() if "token" in name or name == "vocab.txt")
    return Target(transformer_files(), load_tokenizer, names)


@target
def image_processor() -> Target:
    from ruler.core.readers.pretrained import load_image_processor

    return Target(transformer_files(), load_image_processor, ("preprocessor_config.json",))


def adapter(*changed: str) -> Target:
    import torch
    from safetensors.torch import save_file

    from ruler.core.readers.adapters import find_base, merge_adapter

    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "alpha_pattern": {"0": 3}, "base_model_name_or_path": "."}
    names = ("base_model.model.0.lora_A.weight", "base_model.model.0.lora_B.weight", "base_model.model.1.bias")
    tensors = (torch.ones(1, 2), torch.ones(2, 1), torch.ones(2))

    def write(folder: Path) -> None:
        (folder / "adapter_config.json").write_text(json.dumps(config))
        save_file(dict(zip(names, tensors, strict=True)), folder / "adapter_model.safetensors")
        (folder / "config.json").write_text("{}")

    def read(folder: Path) -> None:
        find_base(folder, folder)
        merge_adapter(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)), folder)

    return Target(collect(write), read, changed, {"adapter_model.safetensors": SAFETENSORS})


@target
def adapter_config() -> Target:
    return adapter("adapter_config.json")


@target
def adapter_weights() -> Target:
    return adapter("adapter_model.safetensors")


def checkpoint(ending: str, container: Container) -> Target:
    import torch
    from safetensors.torch import save_file

    from ruler.embeddings.bundle.checkpoints import load_checkpoint

    def build() -> torch.nn.Module:
        return torch.nn.Linear(2, 2)

    name = f"model{ending}"
    state = {"weight": torch.eye(2), "bias": torch.zeros(2)}
    save = torch.save if ending == ".pt" else save_file
    files = collect(lambda folder: save(state, folder / name))
    return Target(
        files, lambda folder: load_checkpoint(build, folder / name, "unlearned"), containers={name: container}
    )


@target
def checkpoint_pt() -> Target:
    return checkpoint(".pt", ZIP)


@target
def checkpoint_safetensors() -> Target:
    return checkpoint(".safetensors", SAFETENSORS)


@contextlib.contextmanager
def quiet() -> Any:
    """Without warnings of parsers, which say nothing of our errors."""
    import logging
    import warnings

    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)
