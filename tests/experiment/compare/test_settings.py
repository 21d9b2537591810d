import json
from pathlib import Path

import pytest

from ruler.core.errors import FileFormatError, InputError, UnknownNameError
from ruler.experiment.compare import list_needed
from ruler.experiment.compare.settings import CompareSettings, read_settings
from ruler.unlearning import METHODS


def test_by_default_all_methods_for_classifiers_and_their_metrics_are_compared() -> None:
    settings = CompareSettings("breast_cancer")
    cells = settings.list_cells(455)
    fitting = [name for name, method in METHODS.items() if method.kind in ("any", "classifier")]
    assert [cell.method for cell in cells if cell.seed == 0] == ["original", *fitting]
    assert len(fitting) >= 15
    assert {"cka", "lira", "relearn_time"} <= set(settings.list_metrics())
    assert not {"truth_ratio", "uds", "klom"} & set(settings.list_metrics())
    assert len({cell.key for cell in cells}) == len(cells) == 3 * (1 + len(fitting))


def test_a_list_as_a_setting_tries_each_of_its_values() -> None:
    settings = CompareSettings(
        "breast_cancer", methods={"ssd": {"threshold": [1.0, 5.0]}, "retrain": {}}, seeds=1, draws=2
    )
    cells = settings.list_cells(455)
    assert [(cell.method, cell.options, cell.forget_seed) for cell in cells] == [
        (method, options, draw)
        for draw in (999, 1000)
        for method, options in [
            ("original", ""),
            ("ssd", '{"threshold": 1.0}'),
            ("ssd", '{"threshold": 5.0}'),
            ("retrain", ""),
        ]
    ]


def test_what_changes_a_number_changes_the_key_and_where_a_file_lies_does_not(patients: Path) -> None:
    def key(path: Path, **changes) -> str:
        settings = CompareSettings(str(path), target="sick", **{"methods": ["ssd"], "seeds": 1} | changes)
        return settings.list_cells(96)[-1].key

    moved = patients.parent / "elsewhere" / patients.name
    moved.parent.mkdir()
    moved.write_bytes(patients.read_bytes())
    before = key(patients)
    assert key(moved) == before
    moved.write_text(patients.read_text().replace("north", "east"))
    others = {key(moved), *(key(patients, **one) for one in ({"seeds": 2}, {"metrics": ["cka"]}, {"forget": 0.2}))}
    assert len(others - {before}) == 4


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"methods": ["npo"]}, InputError, "npo, for language models"),
        ({"methods": {"ssd": {"treshold": 1}}}, UnknownNameError, "Did you mean 'threshold'"),
        ({"methods": []}, InputError, "at least one method"),
        ({"forget": 5.0}, InputError, "forget must be a share under 1; got 5.0. For 5% write 0.05"),
        ({"forget": 0}, InputError, "forget must be a finite number above 0"),
        ({"metrics": ["ckaa"]}, UnknownNameError, "Did you mean 'cka'"),
        ({"forget": "class == malignant", "draws": 2}, InputError, "nothing to draw"),
        ({"architecture": "resnet18"}, InputError, "must be for tables"),
        ({"training": {"epoch": 1}}, UnknownNameError, "Did you mean 'epochs'"),
        ({"seeds": 0}, InputError, "seeds must be"),
    ],
)
def test_a_wrong_setting_is_named(changes, error, message) -> None:
    with pytest.raises(error, match=message):
        CompareSettings("breast_cancer", **changes)


def test_a_toml_file_names_its_data_from_where_it_lies(patients: Path) -> None:
    path = patients.parent / "compare.toml"
    path.write_text('dataset = "patients.csv"\ntarget = "sick"\nforget = "age == 22"\n[methods.ssd]\nthreshold = 5.0\n')
    settings = read_settings(path)
    assert settings.path == patients
    assert settings.methods == {"ssd": {"threshold": 5.0}}
    assert json.loads(settings.list_cells(96)[0].recipe)["data"]["dataset"] == "patients.csv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target = 'sick'", "must name a dataset"),
        ("dataset = 'adult'\nseed = 3", "seed: Extra inputs"),
        ("dataset = 'adult'\nseeds = 'three'", "seeds: Input should be a valid integer"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "compare.toml"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_settings(path)


def test_only_what_a_metric_needs_is_measured() -> None:
    assert "relearn_accuracies" not in list_needed(("cka", "lira"))
    assert {"oracles_", "originals_"} <= list_needed(("lira",))
