from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.core.errors import DataMismatchError, DownloadError, FileFormatError, InputError, UnknownNameError
from ruler.data import DATASETS, TextSet, load_texts, partition_groups, split_sentences
from ruler.data.texts import hash_texts

A = "The patient was seen in the clinic. The wound has healed well."
B = "No known drug allergies are noted."


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "notes.csv"
    pd.DataFrame({"id": [1, 2, 3, 4, 5], "note": [A, B, None, f" {A}\n", "short"]}).to_csv(path, index=False)
    return path


def test_equal_texts_are_one_document_and_rows_are_the_leak(table):
    distinct = load_texts(table, column="note")
    assert distinct.sentences == (*split_sentences(A), B)
    assert (distinct.documents.tolist(), distinct.n_documents) == ([0, 0, 1], 3)
    assert distinct.ids.tolist() == ["0/0", "0/1", "1/0"]
    rows = load_texts(str(table), column="note", by="row")
    assert (rows.documents.tolist(), rows.n_documents, len(rows)) == ([0, 0, 1, 2, 2], 4, 5)
    assert rows.sentences[:2] == rows.sentences[3:]


@pytest.fixture(scope="module")
def mtsamples(real_data):
    return {"distinct": load_texts(root=real_data), "row": load_texts("mtsamples_rows", root=real_data)}


def test_mtsamples(mtsamples):
    entry = DATASETS["mtsamples"]
    distinct, rows = mtsamples["distinct"], mtsamples["row"]
    assert (distinct.n_documents, rows.n_documents) == (entry.n_distinct, entry.n_texts) == (2357, 4966)
    assert len(distinct) == 84349
    assert (
        distinct.sentences[1]
        == "She used to have allergies when she lived in Seattle but she thinks they are worse here."
    )
    assert all(20 <= len(sentence) <= 300 for sentence in distinct.sentences)
    assert set(distinct.sentences) == set(rows.sentences)
    assert distinct.note == entry.note


def test_only_the_split_by_row_puts_a_document_on_both_sides(mtsamples):
    shares = {}
    for by, data in mtsamples.items():
        texts = {}
        for sentence, document in zip(data.sentences, data.documents.tolist(), strict=True):
            texts.setdefault(document, []).append(sentence)
        partition = partition_groups(data.documents, fraction=0.05)
        forget, retain = (
            {tuple(texts[document]) for document in set(data.documents[rows].tolist())}
            for rows in (partition.forget, partition.retain)
        )
        shares[by] = len(forget & retain) / len(forget)
    assert shares["distinct"] < 0.01  # different texts may still have the same few sentences
    assert shares["row"] > 0.5


@given(
    notes=st.lists(
        st.sampled_from([f"{word} was noted at the visit. It was treated at once." for word in "ABCDEFG"]), min_size=6
    ),
    fraction=st.floats(0.05, 0.4),
    seed=st.integers(0, 5),
)
def test_no_text_is_forgotten_and_retained(tmp_path_factory, notes, fraction, seed):
    path = tmp_path_factory.mktemp("notes") / "n.csv"
    pd.DataFrame({"note": notes}).to_csv(path, index=False)
    data = load_texts(path, column="note")
    assert data.n_documents == len(set(notes))
    try:
        partition = partition_groups(data.documents, fraction=fraction, seed=seed)
    except InputError:
        return  # the documents drawn hold every sentence
    firsts = np.array(data.sentences)
    forget = {sentence for sentence in firsts[partition.forget] if not sentence.startswith("It was")}
    assert forget
    assert forget.isdisjoint(firsts[partition.retain])


def test_another_version_is_refused(tmp_path):
    (tmp_path / "text").mkdir()
    table = pd.DataFrame({"sample_name": ["x"], "transcription": [A]})
    table.to_csv(tmp_path / "text" / "mtsamples.csv.gz", index=False)
    with pytest.raises(DataMismatchError, match=r"MTSamples must be .* \(content: \w{12} instead of 2e2bfbf45b0c\)"):
        load_texts(root=tmp_path)
    table.drop(columns="transcription").to_csv(tmp_path / "text" / "mtsamples.csv.gz", index=False)
    with pytest.raises(
        UnknownNameError, match=r"column of mtsamples\.csv\.gz must be one of sample_name; got 'transcription'"
    ):
        load_texts(root=tmp_path)


def test_texts_of_ones_own_are_downloaded_or_read(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    monkeypatch.delenv("RULER_DATA", raising=False)
    table = pd.DataFrame({"text": [A, B, A], "name": ["x", "y", "z"]})
    sizes = {"n_texts": 3, "n_distinct": 2}
    fetched = TextSet(key="mine", title="Mine", download=lambda dataset, progress: table, **sizes)
    texts = load_texts(fetched)
    assert (texts.name, texts.n_documents) == ("mine", 2)
    assert load_texts(replace(fetched, download=None)).sentences == texts.sentences  # from the cache
    own = TextSet(key="own", title="Own", read=lambda: texts, **sizes)
    assert (load_texts(own).name, load_texts(own).sentences) == ("own", texts.sentences)
    with pytest.raises(DataMismatchError, match=r"Own must be .* instead of abc"):
        load_texts(replace(own, content_hash="abc"))


def test_absent_set_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    with pytest.raises(
        DownloadError, match=r"asks for an account.* put it at text/mtsamples\.csv\.gz in the folder that RULER_DATA"
    ):
        load_texts(root=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InputError, r"column must name the texts; got None\. notes\.csv has id, note"),
        ({"column": "nota"}, UnknownNameError, "Did you mean 'note'"),
        ({"column": "id"}, InputError, "column 'id' must hold text; got 5 rows with something else"),
        ({"column": "note", "by": "page"}, InputError, "by must be one of distinct, row; got 'page'"),
    ],
)
def test_wrong_arguments(table, arguments, error, message):
    with pytest.raises(error, match=message):
        load_texts(table, **arguments)


def test_path_that_is_not_there_or_no_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match=r"got 'notes\.tsv'\. There is no file or folder of that name either"):
        load_texts("notes.tsv", column="note")
    with pytest.raises(InputError, match=r"path must be an existing file or folder; got 'notes\.csv'"):
        load_texts("notes.csv", column="note")
    (tmp_path / "notes.tsv").touch()
    with pytest.raises(FileFormatError, match=r"path must end in \.csv, \.csv\.gz, \.parquet; got 'notes\.tsv'"):
        load_texts("notes.tsv", column="note")


def test_column_is_for_own_tables():
    with pytest.raises(InputError, match="column must be omitted for a dataset with a name; got 'x' for 'mtsamples'"):
        load_texts(column="x")


@pytest.mark.parametrize("texts", [["too short", "also short"], ["  ", "\n"]])
def test_nothing_to_read(tmp_path, texts):
    pd.DataFrame({"note": texts}).to_csv(tmp_path / "n.csv", index=False)
    with pytest.raises(
        InputError, match=r"must hold a sentence of 20 to 300 characters; got none|must hold text; got blank rows alone"
    ):
        load_texts(tmp_path / "n.csv", column="note")


def test_hash_sees_order_and_where_texts_end():
    assert len({hash_texts(texts) for texts in (["ab", "c"], ["a", "bc"], ["c", "ab"], ["abc"])}) == 4


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "This is the first sentence. This is the second one!",
            ["This is the first sentence.", "This is the second one!"],
        ),
        ("It ended there.,HEENT:  The throat was sore.", ["HEENT: The throat was sore."]),
        ("a dose of 2.5 mg was given e.g. in the morning", ["a dose of 2.5 mg was given e.g. in the morning"]),
        (
            "A heading without a stop\n\nand a paragraph of its own",
            ["A heading without a stop", "and a paragraph of its own"],
        ),
        ("a line that is\nwrapped in the middle", ["a line that is wrapped in the middle"]),
        ("x" * 19, []),
        ("x" * 20, ["x" * 20]),
        ("x" * 300, ["x" * 300]),
        ("x" * 301, []),
        ("", []),
    ],
)
def test_sentences_follow_one_rule(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB1 .,!?\n\t('\"", max_size=400))
def test_sentences_are_within_the_limits_and_stand_in_the_text(text):
    bare = "".join(text.split())
    position = 0
    for sentence in split_sentences(text):
        assert 20 <= len(sentence) <= 300
        assert sentence == " ".join(sentence.split()).strip(" ,")
        position = bare.index("".join(sentence.split()), position)
        assert split_sentences(sentence) == [sentence]
