"""What `ruler audit` was asked is carried out, noted in the report, and repeated from it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.fuzz.bundles import write_project

import ruler
from ruler.auditing.request import audit_config, audit_folders, repeat
from ruler.auditing.settings import AuditSettings
from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import hash_file
from ruler.neighbors import find_neighbors

QUICK = AuditSettings(n_permutations=99)


@pytest.fixture
def bundle(tmp_path):
    """Two folders of embeddings and a TOML file that names them."""
    random = np.random.default_rng(0)
    for model in ("unlearned", "oracle"):
        (tmp_path / model).mkdir()
        for side, n in (("forget", 30), ("retain", 60), ("held_out", 50)):
            np.save(tmp_path / model / f"{side}.npy", random.normal(size=(n, 5)))
    (tmp_path / "audit.toml").write_text(
        '[embeddings]\nunlearned = "unlearned"\noracle = ["oracle"]\n'
        '[settings]\nn_permutations = 99\nalpha = 0.01\n[evidence]\nrun_by = "the registry"\n'
    )
    return tmp_path


def search_on(device):
    return partial(find_neighbors, device=device)


def read_sides(folder):
    return tuple(np.load(folder / f"{side}.npy") for side in ("forget", "retain", "held_out"))


def numbers(report):
    return {name: (metric.value, metric.effect, metric.p_value) for name, metric in report.metrics.items()}


def test_folders_give_the_report_of_their_arrays(bundle):
    places = {"unlearned": bundle / "unlearned", "oracle": [bundle / "oracle"]}
    report = audit_folders(places, QUICK)
    expected = ruler.audit(read_sides(bundle / "unlearned"), oracle=read_sides(bundle / "oracle"), settings=QUICK)
    assert numbers(report) == numbers(expected)
    assert report.provenance["files"] == {name: str(bundle / name) for name in ("unlearned", "oracle")}
    assert report.provenance["inputs"]["unlearned"]["forget.npy"] == hash_file(bundle / "unlearned" / "forget.npy")


@pytest.mark.parametrize("by_file", [True, False])
def test_references_are_passed_on(bundle, by_file):
    (bundle / "base.toml").write_text(
        '[embeddings]\nunlearned = "unlearned"\nreference = ["oracle"]\n[settings]\nn_permutations = 99\n'
    )
    places = {"unlearned": bundle / "unlearned", "reference": [bundle / "oracle"]}
    report = audit_config(bundle / "base.toml") if by_file else audit_folders(places, QUICK)
    sides = [read_sides(bundle / name) for name in ("unlearned", "oracle")]
    assert numbers(report) == numbers(ruler.audit(sides[0], reference=[sides[1]], settings=QUICK))
    assert (report.given.reference, report.given.oracle) == (1, 0)
    assert report.provenance["files"]["reference"] == str(bundle / "oracle")
    assert numbers(repeat(report, search=search_on)) == numbers(report)


def test_several_oracles_are_numbered_from_the_second(bundle):
    report = audit_folders({"unlearned": bundle / "unlearned", "oracle": [bundle / "oracle"] * 2}, QUICK)
    assert list(report.provenance["files"]) == ["unlearned", "oracle", "oracle 2"]


def test_groups_come_from_their_file(bundle):
    (bundle / "groups.csv").write_text("group\n" + "".join(f"person {row // 3}\n" for row in range(30)))
    places = {"unlearned": bundle / "unlearned", "groups": bundle / "groups.csv"}
    report = audit_folders(places, QUICK)
    assert report.groups is not None
    assert report.groups["n_records"].tolist() == [3] * 10
    assert report.provenance["inputs"]["groups"] == hash_file(bundle / "groups.csv")


def test_a_file_gives_settings_and_options_go_before_it(bundle):
    report = audit_config(bundle / "audit.toml", options={"limit": 0.3})
    assert (report.settings.alpha, report.settings.limit, report.settings.n_permutations) == (0.01, 0.3, 99)
    assert report.declared == {"run_by": "the registry"}
    assert report.provenance["inputs"]["config"] == hash_file(bundle / "audit.toml")
    folders = {"unlearned": bundle / "unlearned", "oracle": [bundle / "oracle"]}
    assert numbers(report) == numbers(audit_folders(folders, report.settings))


def test_layers_are_for_models(bundle):
    with pytest.raises(InputError, match=r"--layer must be used with \[models\]; got \[embeddings\] in"):
        audit_config(bundle / "audit.toml", layers=["1"])


@pytest.mark.parametrize("by_file", [True, False])
def test_a_report_is_repeated_with_its_settings(bundle, by_file):
    first = (
        audit_config(bundle / "audit.toml", options={"limit": 0.3})
        if by_file
        else audit_folders({"unlearned": bundle / "unlearned", "oracle": [bundle / "oracle"]}, QUICK)
    )
    again = repeat(first, search=search_on)
    assert numbers(again) == numbers(first)
    assert (again.settings, again.declared) == (first.settings, first.declared)
    assert again.provenance["request"] == first.provenance["request"]


def test_who_searches_is_asked_with_the_device_of_the_report(bundle):
    first = audit_config(bundle / "audit.toml", device="cpu")
    asked = []
    repeat(first, search=lambda device: asked.append(device) or search_on(device))
    assert asked == ["cpu"]


def test_arrays_cannot_be_repeated(bundle):
    report = ruler.audit(read_sides(bundle / "unlearned"), settings=QUICK)
    for provenance in (report.provenance, {"request": "none"}, {"request": {"config": 3}}):
        with pytest.raises(InputError, match="report must say how to repeat it; got one that was made in Python"):
            repeat(replace(report, provenance=provenance), search=search_on)


def test_inputs_that_change_while_they_are_measured_are_no_evidence(bundle):
    def search(queries, base, **options):
        np.save(bundle / "unlearned" / "forget.npy", np.zeros((30, 5)))
        return find_neighbors(queries, base, **options)

    with pytest.raises(FileFormatError, match=r"forget\.npy must stay as it is while it is audited"):
        audit_folders({"unlearned": bundle / "unlearned"}, QUICK, search=search)


def test_code_that_the_file_names_is_pinned_too(bundle):
    (bundle / "ours.py").write_text(
        "import numpy as np, torch\n"
        "def build():\n    torch.manual_seed(0)\n    return torch.nn.Sequential(torch.nn.Linear(4, 5), "
        "torch.nn.ReLU(), torch.nn.Linear(5, 2))\n"
        "def load():\n    rng = np.random.default_rng(0)\n"
        "    return {side: rng.normal(size=(n, 4)).astype('float32')"
        " for side, n in (('forget', 30), ('retain', 60), ('held_out', 50))}\n"
    )
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    torch.save(net.state_dict(), bundle / "model.pt")
    (bundle / "models.toml").write_text(
        '[models]\nfactory = "ours:build"\nunlearned = "model.pt"\n[data]\nfactory = "ours:load"\n'
        "[settings]\nn_permutations = 99\n"
    )
    report = audit_config(bundle / "models.toml", layers=["1"])
    assert report.provenance["inputs"]["code"] == hash_file(bundle / "ours.py")
    assert report.provenance["request"]["layers"] == ["1"]
    assert {metric.layer for metric in report.metrics.values()} == {"1"}


def test_layers_are_those_that_are_named(tmp_path):
    tables, _ = write_project(tmp_path)
    config = tmp_path / "audit.toml"
    config.write_text(tables + "[settings]\nn_permutations = 99\n")
    one, two = (audit_config(config, layers=layers) for layers in (["1"], ["0", "1"]))
    assert [report.provenance["layers"] for report in (one, two)] == [["1"], ["0", "1"]]
    assert one.metrics["m4"].layers == ()
    assert [row.layer for row in two.metrics["m4"].layers] == ["0", "1"]
    config.write_text(config.read_text().replace('unlearned = "model.pt"', 'unlearned = "model.pt"\nlayer = ["0"]'))
    assert audit_config(config).provenance["layers"] == ["0"]
    assert numbers(audit_config(config, layers=["1"])) == numbers(one)


def test_a_reference_among_the_models_is_loaded(tmp_path):
    tables, _ = write_project(tmp_path)
    config = tmp_path / "audit.toml"
    named = tables.replace('unlearned = "model.pt"', 'unlearned = "model.pt"\nreference = ["model.pt"]')
    config.write_text(named + "[settings]\nn_permutations = 99\n")
    report = audit_config(config, layers=["1"])
    assert (report.given.reference, report.given.oracle) == (1, 0)
    assert report.provenance["weights"]["reference"] == report.provenance["weights"]["unlearned"]
