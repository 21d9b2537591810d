"""What can be compared besides tables: images in folders, texts, prompts, and models of the user's own."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import ruler
from ruler.core.errors import InputError, UnknownNameError
from ruler.experiment.compare.settings import CompareSettings
from ruler.paper.compare import run_comparison

WORDS = [f"w{number}" for number in range(40)]
MODEL = """
from torch import nn

def build(n_features, n_classes):
    return nn.Sequential(nn.Linear(n_features, 6), nn.Tanh(), nn.Linear(6, n_classes))

def build_cnn(channels, height, width, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, 5), nn.ReLU(), nn.Linear(5, n_classes))

def forget_to_return(n_features, n_classes):
    pass
"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for label, base in (("dark", 20), ("bright", 150)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(base, base + 90, (10, 10, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number}.png")
    return tmp_path / "images"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        {
            "question": " ".join(rng.choice(WORDS, 4)),
            "answer": " ".join(rng.choice(WORDS, 3)),
            "author": f"author {row // 3}",
            "land": "south" if row % 2 else "north",
        }
        for row in range(120)
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_folder_of_images_with_a_model_of_the_users_own(images: Path, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(MODEL)
    settings: dict = {"forget": "class == bright", "seeds": 1, "training": {"epochs": 1}, "metrics": ["cka"]}
    settings |= {"methods": ["random_labels"], "architecture": "nets:build_cnn", "image_size": [8, 8]}
    wanted = CompareSettings(str(images), folder=tmp_path, **settings)
    data = wanted.load()
    assert (data.inputs.shape, data.n_train) == ((80, 3, 8, 8), 64)
    assert all(name.startswith("bright/") for name in data.ids[data.cut(0.0, 0, "random").forget])
    found = run_comparison(wanted, tmp_path / "out", jobs=1)
    assert found.summary.failures == {}
    layers = json.loads(found.runs["layers"][1])
    assert list(layers) == ["0", "1", "3:input"]
    assert all(0 <= value <= 1 for value in layers.values())


def test_a_change_of_the_users_function_is_another_comparison(tmp_path: Path) -> None:
    wanted = CompareSettings("breast_cancer", methods=["ssd"], seeds=1, architecture="nets:build", folder=tmp_path)
    (tmp_path / "nets.py").write_text(MODEL)
    before = wanted.list_cells(455)[0].key
    (tmp_path / "nets.py").write_text(MODEL.replace("6", "7"))
    assert wanted.list_cells(455)[0].key != before


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nets:bild", "got 'bild', which is not one"),
        ("nets:forget_to_return", "must return a torch.nn.Module; got NoneType"),
        ("nets:build_cnn", "must run with"),
        ("no_such_module_of_tests:build", "must name a module to import"),
    ],
)
def test_a_wrong_function_is_named_before_anything_is_trained(tmp_path: Path, spec: str, message: str) -> None:
    (tmp_path / "nets.py").write_text(MODEL)
    wanted = CompareSettings("breast_cancer", methods=["ssd"], seeds=1, architecture=spec, folder=tmp_path)
    with pytest.raises(InputError, match=message):
        run_comparison(wanted, tmp_path / "out", jobs=1)


def test_prompts_of_the_users_own_are_compared_in_a_causal_language_model(
    prompts: Path, causal_model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(
        'dataset = "own.jsonl"\nprompt = "question"\ncompletion = "answer"\ngroups = "author"\nforget = 0.2\n'
        f'language_model = "{causal_model.name}"\nseeds = 1\n[training]\nepochs = 1\n'
        "[methods.retrain]\n[methods.npo]\nepochs = 1\n[methods.idk_dpo]\nepochs = 1\n"
        "[methods.fine_tuning]\nepochs = 1\nlearning_rate = 1e-4\n"
    )
    found = run_comparison(path, tmp_path / "out", jobs=1)
    assert found.summary.failures == {}
    assert found.table["method"].tolist() == ["original", "retrain", "npo", "idk_dpo", "fine_tuning"]
    assert {"probability", "min_k", "uds", "cka", "priv_leak"} <= set(found.table)
    assert not {"truth_ratio", "zrf"} & set(found.table)  # nobody paraphrased these; not a classifier
    assert found.table["probability"].between(0, 1).all()
    assert len(json.loads(found.runs["layers"][1])) == 5  # four blocks, and what the head reads
    assert (found.runs["n_forget"] % 3 == 0).all()  # whole authors


@pytest.mark.parametrize(("condition", "n_chosen"), [("land == south", 60), ("author == author 7", 3)])
def test_prompts_are_forgotten_by_a_column(prompts: Path, causal_model: Path, condition: str, n_chosen: int) -> None:
    wanted = CompareSettings(
        str(prompts), prompt="question", completion="answer", forget=condition, language_model=str(causal_model)
    )
    data = wanted.load()
    assert data.is_chosen is not None
    assert data.is_chosen.sum() == n_chosen
    partition = data.cut(0.0, 0, "random")
    assert len(partition.forget) == data.is_chosen[: data.n_train].sum()


def test_texts_of_the_users_own_are_compared_in_a_masked_language_model(masked_model: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    notes = [" ".join(f"The {' '.join(rng.choice(WORDS, 5))} was seen." for _ in range(3)) for _ in range(60)]
    pd.DataFrame({"note": notes, "ward": ["north", "west"] * 30}).to_csv(tmp_path / "notes.csv", index=False)
    found = ruler.compare(
        tmp_path / "notes.csv",
        text="note",
        forget="ward == west",
        methods={"retrain": {}, "gradient_difference": {"epochs": 1}},
        language_model=masked_model,
        seeds=1,
        training={"epochs": 1},
        out=tmp_path / "out",
        jobs=1,
    )
    assert found.summary.failures == {}
    assert {"cka", "linear_probe", "weight_distance"} <= set(found.table)
    assert found.table["cka"].between(0, 1).all()


@pytest.mark.parametrize(
    ("dataset", "changes", "message"),
    [
        ("adult", {"text": "note"}, "text must be omitted for adult"),
        ("adult", {"language_model": "x"}, "language_model must be omitted"),
        ("tofu", {"architecture": "resnet18"}, "architecture must be omitted for prompts"),
        ("tofu", {"methods": ["ssd"]}, "ssd, for classifier models, with prompts"),
        ("tofu", {"methods": {"retrain": {"epochs": 3}}}, "takes those of training"),
        ("own.jsonl", {}, "must be an existing file"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_named(dataset: str, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CompareSettings(dataset, **changes).load()


def test_a_missing_group_is_named(prompts: Path, causal_model: Path) -> None:
    wanted = {"prompt": "question", "completion": "answer", "language_model": str(causal_model)}
    with pytest.raises(UnknownNameError, match="Did you mean 'land'"):
        CompareSettings(str(prompts), forget="lnd == south", **wanted).load()
