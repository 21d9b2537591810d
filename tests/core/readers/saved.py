"""Datasets on disk, as `datasets` leaves them."""

import json

import pyarrow as pa
import pyarrow.parquet


def make_table(columns, features=None):
    table = pa.table(columns)
    metadata = {"huggingface": json.dumps({"info": {"features": features or {}}})}
    return table.replace_schema_metadata(metadata)


def save_dataset(folder, *tables, split=None):
    """As ``Dataset.save_to_disk`` leaves it: Arrow streams listed in state.json."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    state = {"_data_files": [{"filename": name} for name in names], "_split": split}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
