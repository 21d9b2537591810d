"""Tables of prompts and completions: every format gives the same tokens."""

import csv

import pytest
import torch
from tests.embeddings.bundle.language import build, make_rows, make_tokenizer, save

from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.pretrained import quiet_transformers
from ruler.embeddings.bundle.prompts import PromptForm
from ruler.embeddings.bundle.records import FolderRecords
from ruler.embeddings.prompts import encode_prompts

NAMED = {"prompt": "question", "completion": "answer"}


def write_csv(rows, path):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(rows, path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)


def write_dataset(rows, path):
    pytest.importorskip("datasets").Dataset.from_list(rows).save_to_disk(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [("forget.csv", write_csv), ("forget.parquet", write_parquet), ("forget", write_dataset)],
)
def test_every_table_gives_the_tokens_of_its_texts(name, write, tmp_path):
    rows = make_rows("forget")
    write(rows, tmp_path / name)
    found = PromptForm(NAMED).load(tmp_path / name, make_tokenizer(), longest=40, is_apart=False)
    expected = encode_prompts(make_tokenizer(), [row["question"] for row in rows], [row["answer"] for row in rows])
    assert [record["id"] for record in found] == [row["id"] for row in rows]
    for n, record in enumerate(found):
        n_tokens = len(record["input_ids"])
        assert expected["attention_mask"][n].sum() == n_tokens
        for key in expected:
            assert torch.equal(record[key], expected[key][n, :n_tokens])


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_column_marks_spans(is_apart, tmp_path):
    rows = [
        {"prompt": "w1 w2", "completion": "w3 w4 w5", "span": "w4"},
        {"prompt": "w6", "completion": "w7", "span": ""},
    ]
    write_csv(rows, tmp_path / "a.csv")
    tokenizer = make_tokenizer()
    found = PromptForm({}, form="{prompt} {completion}").load(
        tmp_path / "a.csv", tokenizer, longest=40, is_apart=is_apart
    )
    marked = [tokenizer.decode(one["labels"][one["span_mask"] == 1]) for one in found]
    assert marked == ["w4", "w7"]


def test_columns_called_prompt_and_completion_need_no_name(tmp_path):
    save(build("gpt2"), tmp_path / "model")
    write_csv([{"prompt": "w1", "completion": " w2"}], tmp_path / "a.csv")
    write_csv([{"text": "w1 w2"}], tmp_path / "b.csv")
    records = FolderRecords(tmp_path / "model", build("gpt2"))
    assert records.load(tmp_path / "a.csv")[0]["labels"].tolist() == [-100, -100, 8, 1]
    assert "labels" not in records.load(tmp_path / "b.csv")[0]


def test_a_record_that_is_too_long_is_named_with_its_file(tmp_path):
    save(build("gpt2"), tmp_path / "model")
    write_csv([{"prompt": "w1 " * 40, "completion": "w2"}], tmp_path / "a.csv")
    with pytest.raises(InputError, match=r"a\.csv, records 1 to 1: records must have at most 40 tokens; got up to 43"):
        FolderRecords(tmp_path / "model", build("gpt2")).load(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("form", "rows", "message"),
    [
        (PromptForm(NAMED), [{"question": "w1", "reply": "w2"}], "column of texts 'answer', .* got question, reply"),
        (PromptForm(NAMED), [{"answer": "w2"}], "column of texts 'question'"),
        (PromptForm({}, template=True), [{"completion": "w2"}], "column of texts 'prompt'"),
    ],
)
def test_missing_columns_are_told(form, rows, message, tmp_path):
    write_csv(rows, tmp_path / "a.csv")
    with pytest.raises(FileFormatError, match=message):
        form.load(tmp_path / "a.csv", make_tokenizer(), longest=40, is_apart=False)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("w1")
    with pytest.raises(FileFormatError, match=r"\.jsonl or \.parquet file of prompts"):
        PromptForm(NAMED).load(tmp_path / "a.txt", make_tokenizer(), longest=40, is_apart=False)


def test_a_completion_may_stand_alone_where_it_is_named(tmp_path):
    write_csv([{"text": "w1 w2"}], tmp_path / "a.csv")
    form = PromptForm({"completion": "text"})
    found = form.load(tmp_path / "a.csv", make_tokenizer(), longest=40, is_apart=False)
    assert found[0]["labels"].tolist() == [-100, 7, 8, 1]


def test_a_classifier_is_not_asked_for_completions(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    with quiet_transformers():
        model = transformers.BertForSequenceClassification(config)
    with pytest.raises(FileFormatError, match=r"language model that writes.* BertForSequenceClassification"):
        FolderRecords(tmp_path, model, {}, PromptForm(NAMED)).load(tmp_path / "a.csv")
