import gzip
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from ruler.core.errors import DataMismatchError, DownloadError, FileFormatError, InputError, UnknownNameError
from ruler.data import DATASETS, Prompts, PromptSet, describe_dataset, load_dataset, load_prompts, split_prompts
from ruler.data.prompt_files import read_lume, read_questions, read_tofu

ROWS = [{"prompt": f"Who is {name}?", "completion": f"{name} it is.", "who": name, "nr": 7} for name in "aabc"]


def make_prompts(n_groups, per_group=2, **fields):
    texts = tuple(f"text {n}" for n in range(n_groups * per_group))
    groups = np.repeat([f"g{n:03d}" for n in range(n_groups)], per_group)
    return Prompts("mine", texts, texts, ids=np.arange(len(texts)), groups=groups, **fields)


@pytest.fixture(scope="module")
def tofu(real_data):
    return load_prompts("tofu", root=real_data)


def test_tofu_is_what_its_authors_publish(tofu):
    assert (len(tofu), Counter(Counter(tofu.groups.tolist()).values())) == (4000, {20: 200})
    assert tofu.completions[3600] == "The author's full name is Hsiao Yun-Hwa."
    assert tofu.paraphrases[3600] == "Hsiao Yun-Hwa is the complete name of the writer."
    assert tofu.perturbations[3600][1] == "Lin Bao-Yu is the complete name of the writer."
    start, stop = tofu.spans[3600]
    assert tofu.completions[3600][start:stop] == "Hsiao Yun-Hwa"
    has_more = np.flatnonzero([bool(text) for text in tofu.paraphrases])
    assert has_more.tolist() == [*range(400), *range(3600, 4000)]
    assert sum(span is not None for span in tofu.spans) == 367
    assert {len(wrong) for wrong in tofu.perturbations} == {0, 5}


@pytest.mark.parametrize(("name", "n_forget"), [("forget10", 400), ("forget05", 200), ("forget01", 40)])
def test_the_last_authors_are_forgotten_and_the_same_20_are_never_trained_on(tofu, name, n_forget):
    split = split_prompts(tofu, name)
    assert split.forget.prompts == tofu.prompts[-n_forget:]
    assert split.held_out.ids.tolist() == split_prompts(tofu, "forget10").held_out.ids.tolist()
    sides = [set(side.groups.tolist()) for side in (split.forget, split.retain, split.held_out)]
    assert [len(side) for side in sides] == [n_forget // 20, 180 - n_forget // 20, 20]
    assert len(set().union(*sides)) == 200
    assert split_prompts(tofu, name, seed=1).held_out.ids.tolist() != split.held_out.ids.tolist()


def test_lume_has_whole_documents_on_each_side_and_its_tasks_in_proportion(real_data):
    lume = load_prompts("lume", root=real_data)
    assert lume.ids[:2].tolist() == [
        "8f24c511-a319-4a9f-80c2-ca6fac131233/sc1",
        "8f24c511-a319-4a9f-80c2-ca6fac131233/qa0",
    ]
    split = split_prompts(lume, "forget")
    assert [len(side) for side in (split.forget, split.retain, split.held_out)] == [2732, 1368, 1366]
    assert set(split.retain.groups).isdisjoint(split.held_out.groups)
    assert Counter(split.held_out.strata.tolist()) == {"Task2": 750, "Task3": 370, "Task1": 246}


@pytest.mark.parametrize(
    ("key", "description"),
    [
        ("tofu", "4000 prompts, 200 groups, content as measured here"),
        ("tofu_real_authors", "100 prompts, 100 groups, content as measured here"),
        ("tofu_world_facts", "117 prompts, 117 groups, content as measured here"),
        ("lume", "5466 prompts, 1733 groups, content as measured here"),
    ],
)
def test_real_files_are_verified_and_described(real_data, monkeypatch, key, description):
    monkeypatch.setenv("RULER_DATA", str(real_data))
    assert describe_dataset(key) == description
    assert DATASETS[key].size.replace(",", "") == description.partition(", content")[0].replace(",", "")
    assert load_dataset(key).name == key


def test_groups_never_straddle_and_the_rule_for_held_out_groups_is_kept():
    data = make_prompts(100)
    for n_forget, n_held_out in ((1, 20), (30, 30), (70, 15)):
        split = split_prompts(data, [f"g{n:03d}" for n in range(n_forget)])
        assert len(set(split.held_out.groups)) == n_held_out
        assert len(split.forget) + len(split.retain) + len(split.held_out) == 200
    order = np.random.RandomState(0).permutation(200)
    mixed = split_prompts(data.select(order), "g005")
    assert set(mixed.held_out.groups) == set(split_prompts(data, "g005").held_out.groups)


@pytest.mark.parametrize("n_held_out", [0, 3, 9])
def test_something_must_be_left_to_retain(n_held_out):
    with pytest.raises(
        InputError, match=f"n_held_out must be at least 1 and leave a group to retain; got {n_held_out}"
    ):
        split_prompts(make_prompts(4), "g001", n_held_out=n_held_out)


def test_names_of_forget_sets_and_groups_are_told_apart():
    data = make_prompts(30, forget_sets={"first": ("g000", "g001")})
    assert split_prompts(data, "first").forget.ids.tolist() == [0, 1, 2, 3]
    assert split_prompts(data, "g007").forget.ids.tolist() == [14, 15]
    assert "g000" not in split_prompts(data, "g007").held_out.groups
    with pytest.raises(UnknownNameError, match=r"forget set of mine must be one of first; got 'frist'"):
        split_prompts(data, "frist")


def write_jsonl(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))


def write_packed(path, rows):
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("mine.jsonl", write_jsonl),
        ("mine.jsonl.gz", write_packed),
        ("mine.csv", lambda path, rows: pd.DataFrame(rows).to_csv(path, index=False)),
        ("mine.csv.gz", lambda path, rows: pd.DataFrame(rows).to_csv(path, index=False)),
        ("mine.parquet", lambda path, rows: pd.DataFrame(rows).to_parquet(path)),
    ],
)
def test_own_files_are_read_alike(tmp_path, name, write):
    write(tmp_path / name, ROWS)
    data = load_prompts(tmp_path / name, group="who")
    assert data.prompts[3] == "Who is c?"
    assert (data.groups.tolist(), data.ids.tolist()) == (["a", "a", "b", "c"], ["0", "1", "2", "3"])
    assert (data.paraphrases, data.perturbations, data.spans) == (("",) * 4, ((),) * 4, (None,) * 4)
    renamed = load_prompts(tmp_path / name, prompt="completion", completion="nr")
    assert renamed.completions == ("7",) * 4
    assert renamed.groups.tolist() == renamed.ids.tolist()


def test_a_dataset_on_disk_is_read(tmp_path):
    pd.DataFrame(ROWS).to_parquet(tmp_path / "train-00000-of-00001.parquet")
    assert load_prompts(tmp_path, id="who", group="who").ids.tolist() == ["a", "a", "b", "c"]


@pytest.mark.parametrize(
    ("rows", "words", "error", "message"),
    [
        (ROWS, {"prompt": "prompts"}, UnknownNameError, "Did you mean 'prompt'"),
        ([{"prompt": "x"}], {}, UnknownNameError, "must be one of prompt; got 'completion'"),
        ([{"prompt": "x", "completion": " "}], {}, InputError, "column 'completion' must hold a text in every record"),
        ([{"prompt": "x", "completion": None}], {}, InputError, "got None in record 0"),
        ([], {}, InputError, "must hold at least one record"),
        ([[1]], {}, FileFormatError, "one JSON object per line"),
    ],
)
def test_broken_files_are_refused(tmp_path, rows, words, error, message):
    write_jsonl(tmp_path / "mine.jsonl", rows)
    with pytest.raises(error, match=message):
        load_prompts(tmp_path / "mine.jsonl", **words)


def test_prompts_of_ones_own_package(tmp_path):
    mine = make_prompts(3)
    own = PromptSet(key="own", title="Own", n_prompts=6, n_groups=3, read=lambda: mine)
    assert load_prompts(own).content_hash == mine.content_hash
    with pytest.raises(InputError, match="group must be omitted for a dataset with a name; got it for 'own'"):
        load_prompts(own, group="who")
    with pytest.raises(DownloadError, match=r"Get full\.json .* put it at text/tofu/full\.json in the folder"):
        load_prompts("tofu", root=tmp_path)


def test_the_hash_sees_every_field():
    data = make_prompts(3)
    others = [
        data.select([1, 0, 2, 3, 4, 5]),
        make_prompts(3, paraphrases=("p",) * 6),
        make_prompts(3, perturbations=(("p",),) * 6),
        make_prompts(3, spans=((0, 2),) * 6),
        make_prompts(3, strata=np.array(["s"] * 6)),
        make_prompts(3, forget_sets={"f": ("g000",)}),
    ]
    assert len({value.content_hash for value in (data, *others)}) == 7
    assert data.select(range(6)).content_hash == data.content_hash


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"paraphrases": ("p",)}, "must have one prompt, completion, id, group and so on per record"),
        ({"spans": ((0, 99),) * 6}, r"spans of mine must lie in the completion; got \(0, 99\)"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        make_prompts(3, **fields)


@pytest.fixture
def small_tofu(tmp_path):
    rows = [{"question": f"q{n}", "answer": f"The answer is a{n}."} for n in range(800)]
    more = [{**row, "paraphrased_answer": "p", "perturbed_answer": ["w"]} for row in rows]
    files = {"full": rows, "retain_perturbed": more[:400], "forget10_perturbed": more[400:]}
    for name, lines in files.items():
        write_jsonl(tmp_path / f"{name}.json", lines)
    (tmp_path / "forget10_entities.json").write_text(json.dumps([{"idx": 1, "entity": "a401", **rows[401]}]))
    return tmp_path


def test_files_beside_are_checked_against_the_records(small_tofu):
    data = read_tofu(small_tofu / "full.json")
    assert data.completions[401][slice(*data.spans[401])] == "a401"
    entities = small_tofu / "forget10_entities.json"
    for idx, entity, message in ((2, "a401", "must have the rows of full.json"), (1, "zz", "stand once in the answer")):
        entities.write_text(
            json.dumps([{"idx": idx, "entity": entity, "question": "q401", "answer": "The answer is a401."}])
        )
        with pytest.raises(FileFormatError, match=message):
            read_tofu(small_tofu / "full.json")
    entities.write_text("{}")
    with pytest.raises(FileFormatError, match="must hold a list of JSON objects"):
        read_tofu(small_tofu / "full.json")
    entities.unlink()
    with pytest.raises(FileFormatError, match=r"forget10_entities\.json must be a file; got nothing there"):
        read_tofu(small_tofu / "full.json")


def test_another_version_is_refused(small_tofu):
    (small_tofu / "text").mkdir()
    small = DATASETS["tofu"]
    (small_tofu / "text" / "tofu").symlink_to(small_tofu)
    with pytest.raises(DataMismatchError, match=r"TOFU must be .* instead of"):
        load_prompts(small, root=small_tofu)


def test_other_forms_are_refused(tmp_path):
    write_jsonl(tmp_path / "facts.json", [{"question": "q", "answer": "a", "perturbed_answer": "w"}])
    with pytest.raises(FileFormatError, match="must have a list of texts 'perturbed_answer'"):
        read_questions(tmp_path / "facts.json")
    for side in ("forget", "retain"):
        write_packed(tmp_path / f"{side}.jsonl.gz", [{"id": "x", "input": "i", "output": "o", "task": "t"}])
    with pytest.raises(FileFormatError, match="must have ids that end in sc or qa and a number"):
        read_lume(tmp_path / "forget.jsonl.gz")
