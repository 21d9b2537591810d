"""Records that users bring: prepared as the model's own files say, and what is wrong with them is told in a line."""

import csv
import io
import json
import sys
import zipfile

import numpy as np
import pytest
import torch

import ruler.cli
from ruler.core.errors import CheckpointError, FileFormatError, InputError
from ruler.core.readers.pretrained import quiet_transformers
from ruler.embeddings.bundle.checkpoints import load_transformer
from ruler.embeddings.bundle.loading import load_groups
from ruler.embeddings.bundle.records import FolderRecords, load_records

transformers = pytest.importorskip("transformers")
pillow = pytest.importorskip("PIL.Image")

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fever", "cough", "pain", "rash", "none"]
CLASSES = {"mild": 0, "grave": 1}
COUNTS = {"forget": 30, "retain": 90, "held_out": 60}


@pytest.fixture
def text_folder(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=12,
        initializer_range=0.5,  # embeddings that all lie together would be invalid evidence
        label2id=CLASSES,
        id2label={number: name for name, number in CLASSES.items()},
    )
    folder = tmp_path / "unlearned"
    with quiet_transformers():
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    return folder


@pytest.fixture
def image_folder(tmp_path):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=8,
        patch_size=4,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        initializer_range=0.5,
    )
    folder = tmp_path / "unlearned"
    with quiet_transformers():
        transformers.ViTForImageClassification(config).save_pretrained(folder)
    mean_std = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "do_normalize": True, "do_rescale": True}
    size = {"do_resize": True, "size": {"height": 8, "width": 8}, "rescale_factor": 1 / 255, "resample": 2}
    processor = {"image_processor_type": "ViTImageProcessor", **mean_std, **size}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def records_of(folder):
    return FolderRecords(folder, load_transformer(folder, "unlearned"))


def write_csv(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def run_audit(folder, monkeypatch, capsys, sides):
    """`ruler audit` on one model; gives exit status, stderr and the report."""
    lines = "\n".join(f'{side} = "{name}"' for side, name in sides.items())
    settings = "[settings]\nn_permutations = 99\n"
    (folder.parent / "audit.toml").write_text(f'[models]\nunlearned = "unlearned"\n[data]\n{lines}\n{settings}')
    out = folder.parent / "out"
    monkeypatch.setattr(sys, "argv", ["ruler", "audit", str(folder.parent / "audit.toml"), "--out", str(out)])
    with pytest.raises(SystemExit) as stop:
        ruler.cli.main()
    report = json.loads((out / "report.json").read_text()) if out.exists() else None
    return stop.value.code or 0, capsys.readouterr().err, report


def test_texts_are_audited_from_the_folder_alone(text_folder, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for side, n in COUNTS.items():
        rows = [f"{side}{row},{' '.join(rng.choice(VOCABULARY[5:], 6))},grave" for row in range(n)]
        write_csv(text_folder.parent / f"{side}.csv", "\n".join(["id,text,label", *rows]))
    sides = {side: f"{side}.csv" for side in COUNTS}
    code, err, report = run_audit(text_folder, monkeypatch, capsys, sides)
    assert code in (0, 1, 3), err
    assert set(report["answers"]["unlearned"]) == {
        "forget_accuracy",
        "retain_accuracy",
        "held_out_accuracy",
        "membership_inference",
    }
    assert report["provenance"]["files"]["unlearned"].endswith("unlearned")


def test_images_are_audited_from_the_folder_alone(image_folder, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for side, n in COUNTS.items():
        for row in range(n):
            place = image_folder.parent / side / f"LABEL_{row % 2}"
            place.mkdir(parents=True, exist_ok=True)
            pillow.fromarray(np.tile(rng.integers(256, size=3, dtype=np.uint8), (10, 9, 1))).save(place / f"{row}.png")
    _, err, report = run_audit(image_folder, monkeypatch, capsys, {side: side for side in COUNTS})
    assert report is not None, err  # untrained as it is, the model may be invalid evidence
    assert "held_out_accuracy" in report["answers"]["unlearned"]


def test_faults_of_a_folder_are_said_in_a_line(text_folder, monkeypatch, capsys):
    code, err, report = run_audit(text_folder, monkeypatch, capsys, {"forget": "a.csv", "retain": "a.csv"})
    assert (code, report) == (2, None)
    assert err.strip().endswith("a.csv must be a file or folder of records; got nothing there. Check the path.")


def test_texts_become_tokens_labels_and_ids(text_folder):
    path = write_csv(text_folder.parent / "a.csv", '\ufeffid,text,label\na,"Fever, cough",grave\nb,rash,0\n')
    records = records_of(text_folder).load(path)
    assert [record["input_ids"] for record in records] == [[2, 5, 1, 6, 3], [2, 8, 3]]
    assert [record["labels"] for record in records] == [1, 0]
    assert [record["id"] for record in records] == ["a", "b"]


def test_texts_longer_than_the_model_reads_are_cut(text_folder):
    path = write_csv(text_folder.parent / "a.csv", "text\n" + "pain " * 40)
    (record,) = records_of(text_folder).load(path)
    assert record["input_ids"] == [2, *[7] * 10, 3]
    assert "labels" not in record
    assert "id" not in record


def test_texts_may_be_longer_than_csv_lets_fields_be(text_folder):
    limit = csv.field_size_limit()
    path = write_csv(text_folder.parent / "a.csv", "text\n" + "pain " * (limit // 4) + "\nrash\n")
    assert [len(record["input_ids"]) for record in records_of(text_folder).load(path)] == [12, 3]
    assert csv.field_size_limit() == limit
    write_csv(path, path.read_text() + '"fever')
    with pytest.raises(FileFormatError, match="it cannot be read: unexpected end of data"):
        records_of(text_folder).load(path)
    assert csv.field_size_limit() == limit


def test_a_model_without_a_limit_of_its_own_reads_what_its_tokenizer_says(tmp_path):
    config = transformers.XLNetConfig(vocab_size=len(VOCABULARY), d_model=16, n_layer=1, n_head=2, d_inner=24)
    assert config.max_position_embeddings == -1
    with quiet_transformers():
        transformers.XLNetForSequenceClassification(config).save_pretrained(tmp_path / "xlnet")
    (tmp_path / "xlnet" / "vocab.txt").write_text("\n".join(VOCABULARY))
    path = write_csv(tmp_path / "a.csv", "text\n" + "pain " * 40)
    for limit, n_tokens in ({}, 42), ({"model_max_length": 8}, 8):
        settings = json.dumps({"tokenizer_class": "BertTokenizer", **limit})
        (tmp_path / "xlnet" / "tokenizer_config.json").write_text(settings)
        (record,) = records_of(tmp_path / "xlnet").load(path)
        assert len(record["input_ids"]) == n_tokens


def test_positions_that_start_after_the_padding_are_not_read_beyond(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.RobertaConfig(vocab_size=10, max_position_embeddings=12, pad_token_id=1, **sizes)
    model = transformers.RobertaForSequenceClassification(config).eval()
    with quiet_transformers():
        model.save_pretrained(tmp_path / "roberta")
    (tmp_path / "roberta" / "vocab.txt").write_text("\n".join(VOCABULARY))
    (tmp_path / "roberta" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (record,) = records_of(tmp_path / "roberta").load(write_csv(tmp_path / "a.csv", "text\n" + "pain " * 40))
    tokens = torch.tensor([record["input_ids"]])
    assert tokens.shape == (1, 10)
    assert model(tokens).logits.shape == (1, 2)
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.cat([tokens, tokens[:, -1:]], dim=1))


def test_groups_and_strata_of_texts_are_passed_on(text_folder):
    path = write_csv(text_folder.parent / "a.csv", "text,label,group,strata\nfever,grave,ann,2020\nrash,0,bob,2021\n")
    records = records_of(text_folder).load(path)
    assert [record["group"] for record in records] == ["ann", "bob"]
    assert [record["strata"] for record in records] == ["2020", "2021"]


def test_columns_may_have_other_names(text_folder):
    path = write_csv(text_folder.parent / "a.csv", "text,severity,year\nfever,grave,2020\n")
    named = FolderRecords(
        text_folder, load_transformer(text_folder, "unlearned"), {"label": "severity", "strata": "year"}
    )
    (record,) = named.load(path)
    assert (record["labels"], record["strata"]) == (1, "2020")
    wrong = FolderRecords(text_folder, load_transformer(text_folder, "unlearned"), {"label": None, "strata": "month"})
    with pytest.raises(
        FileFormatError, match=r"must have the column 'month', as data\.strata says; got text, severity"
    ):
        wrong.load(path)


def test_texts_may_be_lines_of_json(text_folder):
    lines = [{"text": "Fever, cough", "label": "grave", "id": 7}, {"text": "rash", "label": 0, "id": 8}]
    path = write_csv(text_folder.parent / "a.jsonl", "\n".join(map(json.dumps, lines)))
    records = records_of(text_folder).load(path)
    assert [(record["labels"], record["id"]) for record in records] == [(1, 7), (0, 8)]
    write_csv(path, '{"text": "fever"}\n[1]\n')
    with pytest.raises(FileFormatError, match="must hold one JSON object per line; got another value in line 2"):
        records_of(text_folder).load(path)
    write_csv(path, '{"text": "fever"')
    with pytest.raises(FileFormatError, match=r"must be a sound \.jsonl file"):
        records_of(text_folder).load(path)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("", "must have a column text, filled in every row; got no rows"),
        ("words\nfever\n", "must have a column text, filled in every row; got words"),
        ("label,text\n1\n", "must have a column text, filled in every row; got none in record 1"),
        ("text,label\nfever,1\n ,1\n", "must have a column text, filled in every row; got none in record 2"),
        ("text,label\nfever,awful\n", r"as the model names its classes \(mild, grave\); got 'awful'"),
        ("text,label\nfever,2\n", r"as the model names its classes \(mild, grave\); got '2'"),
        ("text,label\nfever\n", r"as the model names its classes \(mild, grave\); got ''"),
        ('text\n"fever\n', "must be a sound .csv file; it cannot be read: unexpected end of data"),
    ],
)
def test_bad_texts_are_refused(text_folder, text, phrase):
    with pytest.raises(FileFormatError, match=phrase):
        records_of(text_folder).load(write_csv(text_folder.parent / "a.csv", text))


def test_images_are_prepared_as_the_processor_says(image_folder):
    colours = np.zeros((2, 20, 30, 3), dtype=np.uint8)
    colours[1] = 255
    np.savez(image_folder.parent / "a.npz", inputs=colours, labels=[1, 0], ids=["x", "y"])
    records = records_of(image_folder).load(image_folder.parent / "a.npz")
    assert records["pixel_values"].shape == (2, 3, 8, 8)
    np.testing.assert_allclose(records["pixel_values"][:, 0, 0, 0], [-2, 2], atol=1e-6)
    assert records["labels"].tolist() == [1, 0]
    assert records["ids"].tolist() == ["x", "y"]


def test_numbers_that_are_no_images_are_fed_as_they_are(image_folder):
    values = np.random.default_rng(0).normal(size=(3, 3, 8, 8))
    np.save(image_folder.parent / "a.npy", values)
    records = records_of(image_folder).load(image_folder.parent / "a.npy")
    np.testing.assert_array_equal(records["pixel_values"], values)
    assert list(records) == ["pixel_values"]


def test_image_folders_give_ids_and_classes(image_folder):
    side = image_folder.parent / "side"
    for name, shade in (("1/b.png", 255), ("LABEL_0/a.jpg", 0), ("1/.hidden.png", 9)):
        (side / name).parent.mkdir(parents=True, exist_ok=True)
        pillow.new("RGB", (6, 5), (shade,) * 3).save(side / name)
    records = records_of(image_folder).load(side)
    assert records["id"].tolist() == ["1/b.png", "LABEL_0/a.jpg"]
    assert records["labels"].tolist() == [1, 0]
    np.testing.assert_allclose(records["pixel_values"][:, 0, 0, 0], [2, -2], atol=0.05)


def test_images_without_subfolders_have_no_classes(image_folder):
    side = image_folder.parent / "side"
    (side / "no image.png").mkdir(parents=True)
    with pytest.raises(InputError, match=r"must hold at least one image \(\.png, \.jpg, \.jpeg\); got none"):
        records_of(image_folder).load(side)
    pillow.new("L", (6, 5)).save(side / "a.png")
    assert "labels" not in records_of(image_folder).load(side)


def test_bad_images_are_refused(image_folder):
    side = image_folder.parent / "side"
    (side / "walrus").mkdir(parents=True)
    (side / "walrus" / "a.png").write_bytes(b"no image")
    with pytest.raises(FileFormatError, match=r"a\.png must be a PNG or JPEG"):
        records_of(image_folder).load(side)
    pillow.new("RGB", (6, 5)).save(side / "walrus" / "a.png")
    with pytest.raises(FileFormatError, match=r"as the model names its classes .* got 'walrus'"):
        records_of(image_folder).load(side)
    np.save(image_folder.parent / "grey.npy", np.zeros((2, 6, 6, 1), dtype=np.uint8))
    with pytest.raises(FileFormatError, match=r"images must be such that the image processor .* shape \(6, 6, 1\)"):
        records_of(image_folder).load(image_folder.parent / "grey.npy")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.parquet", "a"])
def test_records_of_another_ending_are_told_what_is_read(text_folder, name):
    (text_folder.parent / name).touch()
    with pytest.raises(
        FileFormatError,
        match=r"must be a \.csv or \.jsonl file of texts, a folder of images, a Hugging .* got '(\.|no ending)",
    ):
        records_of(text_folder).load(text_folder.parent / name)


def test_a_folder_that_is_not_there_is_told(image_folder):
    with pytest.raises(FileFormatError, match=r"bad must be a file or folder of records; got nothing there"):
        records_of(image_folder).load(image_folder.parent / "bad")


def test_images_beside_class_folders_are_told(image_folder):
    side = image_folder.parent / "side"
    (side / "LABEL_0").mkdir(parents=True)
    for name in ("LABEL_0/a.png", "top.png"):
        pillow.new("RGB", (6, 5)).save(side / name)
    with pytest.raises(
        FileFormatError, match=r"either all in subfolders, one per class, or all directly; got both, such as top\.png"
    ):
        records_of(image_folder).load(side)


def save_dataset(folder, columns, names=None, part="train"):
    """As on the hub: a parquet file a part, with the dataset's features among its notes."""
    pyarrow = pytest.importorskip("pyarrow")
    folder.mkdir(exist_ok=True)
    features = {"label": {"_type": "ClassLabel", "names": names}} if names else {}
    notes = {"huggingface": json.dumps({"info": {"features": features}})}
    table = pyarrow.table(columns).replace_schema_metadata(notes)
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / f"{part}-00000-of-00001.parquet")
    return folder


def png_of(shade, size=(6, 5)):
    stream = io.BytesIO()
    pillow.new("RGB", size, (shade,) * 3).save(stream, "PNG")
    return {"bytes": stream.getvalue(), "path": None}


def test_a_dataset_of_texts_is_fed_as_a_csv_is(text_folder):
    columns = {"text": ["Fever, cough", "rash"], "label": [0, 1], "id": [7, 8]}
    records = records_of(text_folder).load(save_dataset(text_folder.parent / "hf", columns, ["grave", "mild"]))
    path = write_csv(text_folder.parent / "a.csv", 'id,text,label\n7,"Fever, cough",grave\n8,rash,mild\n')
    assert records == records_of(text_folder).load(path)


def test_a_dataset_of_images_is_fed_as_a_folder_is(image_folder):
    columns = {"image": [png_of(0), png_of(255, (9, 7))], "label": [1, 0], "id": ["x", "y"]}
    records = records_of(image_folder).load(save_dataset(image_folder.parent / "hf", columns, ["cat", "dog"]))
    np.testing.assert_allclose(records["pixel_values"][:, 0, 0, 0], [-2, 2], atol=1e-6)
    assert records["pixel_values"].shape == (2, 3, 8, 8)
    assert records["labels"].tolist() == [1, 0]  # this model's classes have no names: numbers count
    assert records["id"].tolist() == ["x", "y"]
    bare = records_of(image_folder).load(save_dataset(image_folder.parent / "bare", {"image": [png_of(0)]}))
    assert list(bare) == ["pixel_values"]


def test_datasets_are_audited(image_folder, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    for side, n in COUNTS.items():
        columns = {"image": [png_of(shade) for shade in rng.integers(256, size=n).tolist()], "label": [0, 1] * (n // 2)}
        save_dataset(image_folder.parent / side, columns, ["cat", "dog"])
    _, err, report = run_audit(image_folder, monkeypatch, capsys, {side: side for side in COUNTS})
    assert report is not None, err  # untrained as it is, the model may be invalid evidence
    assert "held_out_accuracy" in report["answers"]["unlearned"]


@pytest.mark.parametrize(
    ("columns", "names", "phrase"),
    [
        ({"note": ["fever"]}, None, r"hf/train must have a column 'text'; got note\. Rename the one with the texts"),
        ({"text": ["fever", " "]}, None, "must have a column text, filled in every row; got none in record 2"),
        ({"text": [5]}, None, "must have a column text, filled in every row; got none in record 1"),
        ({"text": ["fever"], "label": [0]}, ["cat"], r"names its classes \(mild, grave\); got 'cat'"),
        ({"text": ["fever"], "label": [-1]}, ["mild"], r"names its classes \(mild, grave\); got '-1'"),
        ({"text": ["fever", "rash"], "label": ["mild", None]}, None, r"names its classes \(mild, grave\); got ''"),
        ({"text": []}, None, "hf/train must have rows, and columns of different names; got 0 rows"),
    ],
)
def test_datasets_that_do_not_fit_are_refused(text_folder, columns, names, phrase):
    with pytest.raises(InputError, match=phrase):
        records_of(text_folder).load(save_dataset(text_folder.parent / "hf", columns, names))


def test_parts_of_a_dataset_are_not_joined(text_folder):
    for part in ("train", "test"):
        folder = save_dataset(text_folder.parent / "hf", {"text": ["fever"]}, part=part)
    with pytest.raises(InputError, match=r"hf must hold one part of a dataset; got test, train\. Put each in a folder"):
        records_of(text_folder).load(folder)


def test_a_broken_image_of_a_dataset_is_named(image_folder):
    folder = save_dataset(image_folder.parent / "hf", {"image": [png_of(0), {"bytes": b"no", "path": None}]})
    with pytest.raises(FileFormatError, match=r"image 1 of .*hf must be a PNG or JPEG .* read \(not one of the two\)"):
        records_of(image_folder).load(folder)


def test_a_model_without_its_processor_is_told(image_folder):
    (image_folder / "preprocessor_config.json").unlink()
    np.save(image_folder.parent / "a.npy", np.zeros((2, 6, 6, 3), dtype=np.uint8))
    with pytest.raises(FileFormatError, match=r"must hold an image processor; got none of preprocessor_config\.json"):
        records_of(image_folder).load(image_folder.parent / "a.npy")


def test_a_broken_processor_is_told(image_folder):
    (image_folder / "preprocessor_config.json").write_text('{"image_processor_type": "Trap"}')
    np.save(image_folder.parent / "a.npy", np.zeros((2, 6, 6, 3), dtype=np.uint8))
    with pytest.raises(FileFormatError, match="must hold a sound image processor; it cannot be read"):
        records_of(image_folder).load(image_folder.parent / "a.npy")


def test_a_checkpoint_in_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "model.pt").touch()
    with pytest.raises(FileFormatError, match=r"models\.oracle must be a folder .* got the file .* as models\.factory"):
        load_transformer(tmp_path / "model.pt", "oracle")


def test_a_model_whose_head_was_not_saved_is_told(text_folder):
    config = json.loads((text_folder / "config.json").read_text())
    (text_folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    with pytest.raises(CheckpointError, match=r"all weights of the oracle model; \d are missing, such as cls\.pred"):
        load_transformer(text_folder, "oracle")


def test_records_keep_labels_and_ids(tmp_path):
    np.savez(tmp_path / "a.npz", inputs=np.eye(3), ids=["x", "y", "z"])
    records = load_records(tmp_path / "a.npz")
    assert records.ids.tolist() == ["x", "y", "z"]
    assert records[1].tolist() == [0.0, 1.0, 0.0]
    np.savez(tmp_path / "c.npz", inputs=np.eye(3), labels=np.arange(3), strata=[1, 1, 2], groups=["p", "p", "q"])
    records = load_records(tmp_path / "c.npz")
    assert (len(records), records[2][1], records.ids) == (3, 2, None)
    assert (records.strata.tolist(), records.groups.tolist()) == ([1, 1, 2], ["p", "p", "q"])
    np.savez(tmp_path / "b.npz", inputs=np.eye(3))
    assert load_records(tmp_path / "b.npz").shape == (3, 3)


@pytest.mark.parametrize(
    ("arrays", "phrase"),
    [
        ({"rows": np.eye(2)}, "must hold the array inputs"),
        ({"inputs": np.eye(2), "labels": np.zeros(3)}, "as many labels, ids, groups and strata as inputs"),
        ({"inputs": np.eye(2), "labels": np.array(1)}, "as many labels, ids, groups and strata as inputs"),
    ],
)
def test_bad_records_are_refused(tmp_path, arrays, phrase):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(FileFormatError, match=phrase):
        load_records(tmp_path / "a.npz")


def test_records_of_another_ending_are_refused(tmp_path):
    (tmp_path / "a.csv").touch()
    with pytest.raises(FileFormatError, match=r"a\.csv must be a \.npy or \.npz file of inputs; got '\.csv'"):
        load_records(tmp_path / "a.csv")


@pytest.mark.parametrize(("name", "found"), [("absent", "nothing there"), (".", "a folder")])
def test_records_that_are_no_file_are_told(tmp_path, name, found):
    with pytest.raises(FileFormatError, match=f"must be a file; got {found}. Check the path"):
        load_records(tmp_path / name)


def test_bombs_of_records_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs.npy", bytes(64 << 20))
    with pytest.raises(FileFormatError, match="must not unfold"):
        load_records(tmp_path / "a.npz")


def test_groups_must_be_labels(tmp_path):
    np.save(tmp_path / "groups.npy", np.ones((3, 2)))
    with pytest.raises(FileFormatError, match="must hold one group per record"):
        load_groups(tmp_path / "groups.npy")
    np.save(tmp_path / "groups.npy", np.array([None, "a"], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"must be a sound \.npy file"):
        load_groups(tmp_path / "groups.npy")
    with pytest.raises(FileFormatError, match="must be a file; got nothing there"):
        load_groups(tmp_path / "none.csv")
