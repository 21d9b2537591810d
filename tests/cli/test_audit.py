"""`ruler audit` as a user runs it: exit status, one line for what is wrong, nothing written then."""

import json
import sys
import textwrap
import zipfile
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
from tests.neighbors.fake_ray import FakeRay, WorkerCrashedError

import ruler
from ruler import Report
from ruler.core.types import Embeddings
from ruler.embeddings import save_embeddings

SIZES = {"forget": 60, "retain": 80, "held_out": 120}
MANY = {"forget": 300, "retain": 300, "held_out": 600}  # enough to show that nothing is left
MODELS = ("unlearned", "oracle", "original")


@pytest.fixture
def run(ruler_command):
    """Run `ruler audit`."""
    return partial(ruler_command, "audit")


def make_rows(left=0.0, seed=0, sizes=SIZES):
    """Embeddings of three models; ``left`` is the part of the original's memory that the unlearned model keeps."""
    rng = np.random.default_rng(seed)
    base = {side: rng.normal(size=(n, 8)) for side, n in sizes.items()}
    rows = {(m, side): part + 0.1 * rng.normal(size=part.shape) for m in MODELS for side, part in base.items()}
    memory = rng.normal(size=(sizes["forget"], 8))
    rows["original", "forget"] += memory
    rows["unlearned", "forget"] += left * memory
    return rows


def add_losses(rows, left=0.0, seed=0):
    """The same with losses: the original knows its forget records, the unlearned model ``left`` of them."""
    rng = np.random.default_rng(seed)
    found = {}
    for (model, side), values in rows.items():
        known = {"retain": 1.0, "held_out": 0.0, "forget": {"original": 1.0, "oracle": 0.0}.get(model, left)}[side]
        losses = np.logaddexp(0.0, -rng.normal(size=len(values)) - 4.0 * known)
        found[model, side] = Embeddings(values, losses=losses)
    return found


def write_rows(folder, rows, ending=".npy"):
    """One folder per model with one file per side, and the options that name them."""
    words = []
    for (model, side), values in rows.items():
        (folder / model).mkdir(exist_ok=True)
        one = values if isinstance(values, Embeddings) else Embeddings(values)
        save_embeddings(one, folder / model / f"{side}{ending}")
        if ending == ".npy" and one.losses is not None:  # which has no room for them
            np.save(folder / model / f"{side}_losses.npy", one.losses)
        if f"--{model}" not in words:
            words += [f"--{model}", str(folder / model)]
    return words


def assert_refused(folder, answer, *phrases):
    """Exit 2, one line on stderr, after those that say which code is executed, and nothing written."""
    code, out, err = answer
    assert code == 2, (out, err)
    assert out == ""
    assert len([line for line in err.splitlines() if not line.startswith("ruler: will execute ")]) == 1, err
    assert "Traceback" not in err
    for phrase in phrases:
        assert phrase in err
    assert not (folder / "ruler-audit-report").exists()
    assert not (folder / "out").exists()


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".safetensors", ".pt"])
def test_erased_is_0_and_leaves_a_report(run, tmp_path, ending):
    code, out, err = run(*write_rows(tmp_path, add_losses(make_rows(sizes=MANY)), ending), "--out", tmp_path / "out")
    assert code == 0, (out, err)
    assert "RULER audit: ERASED" in out
    assert f"report: {tmp_path / 'out' / 'report.html'}" in out
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["verdict"] == "erased"
    assert -0.2 < report["outputs"]["remaining"]["low"] < report["layers"]["remaining"]["high"] < 0.2
    assert report["provenance"]["files"] == {model: str(tmp_path / model) for model in MODELS}


def test_a_residual_is_1(run, tmp_path):
    code, out, _ = run(*write_rows(tmp_path, make_rows(left=1.0)))
    assert code == 1
    assert "RULER audit: RESIDUAL" in out
    assert (tmp_path / "ruler-audit-report" / "report.html").is_file()


def test_a_damaged_model_is_1(run, tmp_path):
    rows, rng = make_rows(), np.random.default_rng(1)
    for side, n in SIZES.items():
        rows["unlearned", side] = rng.normal(size=(n, 8))
    code, out, _ = run(*write_rows(tmp_path, rows))
    assert code == 1
    assert "RULER audit: DAMAGED" in out


def test_an_inconclusive_verdict_is_3_unless_it_is_allowed(run, tmp_path):
    words = write_rows(tmp_path, make_rows(sizes={"forget": 12, "retain": 240, "held_out": 120}))
    code, out, err = run(*words)
    assert code == 3, (out, err)
    assert "RULER audit: INCONCLUSIVE" in out
    assert run(*words, "--allow-inconclusive")[0] == 0
    assert run(*write_rows(tmp_path, make_rows(left=1.0)), "--allow-inconclusive")[0] == 1


def test_a_record_that_stands_out_is_1_whatever_is_allowed(run, tmp_path):
    rows = make_rows(sizes={"forget": 20, "retain": 300, "held_out": 600})
    rows = {key: value for key, value in rows.items() if key[0] != "original"}
    rows["unlearned", "forget"][0] += 40.0  # one among 20 moves no mean rank
    words = (*write_rows(tmp_path, rows), "--out", tmp_path / "out", "--allow-inconclusive")
    code, out, err = run(*words)
    assert code == 1, (out, err)
    report = Report.load(tmp_path / "out")
    assert report.verdict == "inconclusive"
    assert report.records["finding"].ne("does not stand out").sum() == 1


def test_the_unlearned_model_alone_is_enough(run, tmp_path):
    sides = (("unlearned", "forget"), ("unlearned", "retain"))
    code, _, _ = run(*write_rows(tmp_path, {key: value for key, value in make_rows().items() if key in sides}))
    assert code == 3
    report = json.loads((tmp_path / "ruler-audit-report" / "report.json").read_text())
    assert report["metrics"]["m4"]["control"]["kind"] == "none"
    assert any("Held-out" in need for need in report["needs"])


def test_several_oracles_are_given_by_repeating_the_option(run, tmp_path):
    words = write_rows(tmp_path, make_rows(left=1.0))
    again = tmp_path / "again"
    again.mkdir()
    rng = np.random.default_rng(7)
    oracle = {key: value for key, value in make_rows().items() if key[0] == "oracle"}
    write_rows(again, {key: value + 0.05 * rng.normal(size=value.shape) for key, value in oracle.items()})
    code, out, err = run(*words, "--oracle", again / "oracle", "--out", tmp_path / "out")
    assert code == 1, (out, err)
    files = json.loads((tmp_path / "out" / "report.json").read_text())["provenance"]["files"]
    assert files["oracle"] == str(tmp_path / "oracle")
    assert files["oracle 2"] == str(again / "oracle")


def test_json_is_the_report_and_nothing_else(run, tmp_path):
    code, out, _ = run(*write_rows(tmp_path, make_rows(left=1.0)), "--json")
    assert code == 1
    shown = json.loads(out)
    assert shown["verdict"] == "residual"
    saved = json.loads((tmp_path / "ruler-audit-report" / "report.json").read_text())
    assert {name: saved[name] for name in shown if name != "records"} == {
        name: part for name, part in shown.items() if name != "records"
    }


def test_quiet_prints_nothing_but_saves_the_report(run, tmp_path):
    assert run(*write_rows(tmp_path, make_rows(left=1.0)), "--quiet") == (1, "", "")
    assert (tmp_path / "ruler-audit-report" / "report.html").is_file()


def test_settings_come_from_options(run, tmp_path):
    words = ["--alpha", "0.01", "--limit", "0.3", "--confidence", "0.9", "--control", "same-rule", "--seed", "3"]
    words += ["--scope", "outputs", "--device", "cpu", "--out", tmp_path / "out"]
    assert run(*write_rows(tmp_path, make_rows(left=1.0)), *words)[0] == 1
    settings = json.loads((tmp_path / "out" / "report.json").read_text())["settings"]
    expected = {"alpha": 0.01, "limit": 0.3, "confidence": 0.9, "control": "same-rule", "seed": 3, "scope": "outputs"}
    assert {name: settings[name] for name in expected} == expected


def test_references_are_given_by_repeating_the_option(run, tmp_path):
    words = write_rows(tmp_path, {key: value for key, value in make_rows().items() if key[0] != "original"})
    words = ["--reference" if word == "--oracle" else word for word in words]
    (tmp_path / "more").mkdir()
    others = {key: value for key, value in make_rows(seed=1).items() if key[0] == "oracle"}
    write_rows(tmp_path / "more", others)
    code, _, err = run(*words, "--reference", tmp_path / "more" / "oracle", "--out", tmp_path / "out")
    assert code == 3, err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["given"] | {"reference": 2, "oracle": 0} == report["given"]
    assert list(report["provenance"]["files"]) == ["unlearned", "reference", "reference 2"]


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["--limit", "1.7"], "limit must be under 1; got 1.7"),
        (["--scope", "answers"], "scope must be one of layers, outputs; got 'answers'"),
        (["--control", "chosen"], "control must be one of random, same-rule; got 'chosen'"),
        (["--margin", "0.1"], "given as --limit, from 0 (never seen) to 1 (trained on); got the old --margin"),
        (["--margin=0.1"], "Write --limit 0.2"),
        (["--layer", "all"], "--layer must be used with models in a TOML file; got embeddings"),
        (["--device", "gpu"], "--device must be one of cpu, cuda, mps, xpu; got 'gpu'"),
        (["--device", "cpu,cdua:1"], "--device must be one of cpu, cuda, mps, xpu; got 'cpu,cdua:1'"),
        (["--json", "--quiet"], "--json must not be used with --quiet"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, tmp_path, words, phrase):
    assert_refused(tmp_path, run(*write_rows(tmp_path, make_rows()), *words), phrase)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("side", ["forget", "retain", "held-out"])
def test_the_old_options_name_the_new_form(run, tmp_path, model, side):
    phrases = [f"must be given as --{model} DIR", f"got the old --{model}-{side}", f"as {side.replace('-', '_')}.npy"]
    assert_refused(tmp_path, run(f"--{model}-{side}", "rows.npy"), *phrases)
    assert_refused(tmp_path, run(f"--{model}-{side}=rows.npy"), *phrases)


def test_an_error_of_ours_is_70_and_says_what_to_report(run, tmp_path, monkeypatch):
    monkeypatch.setattr("ruler.auditing.request.load_model_folder", lambda path, **_: {}["a key that is not there"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, err = run("--unlearned", tmp_path)
    assert (code, out) == (70, "")
    assert len(err.splitlines()) == 1
    assert "an error of RULER" in err
    assert "KeyError: 'a key that is not there'" in err
    (file,) = tmp_path.glob("ruler-error-*.txt")
    assert str(file) in err
    assert "Traceback" in file.read_text()


def test_invalid_evidence_is_2_and_says_why(run, tmp_path):
    rows = make_rows()
    names = np.array([f"record {row}" for row in range(SIZES["forget"])])
    rows["unlearned", "forget"] = Embeddings(rows["unlearned", "forget"], names)
    rows["oracle", "forget"] = Embeddings(rows["oracle", "forget"], names[::-1].copy())
    code, out, _ = run(*write_rows(tmp_path, rows), "--out", tmp_path / "out")
    assert code == 2
    assert "INVALID" in out
    assert "ids_differ" in out
    assert (tmp_path / "out" / "report.html").is_file()


# Bad files: each replaces one sound file.


def _truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path):
    path.write_bytes(b"")


def _text_rows(path):
    np.save(path, np.array([["a", "b"]] * SIZES["forget"]))


def _complex_rows(path):
    np.save(path, np.ones((SIZES["forget"], 8), dtype=complex))


def _pickled(path):
    np.save(path, np.array([{"a": 1}] * SIZES["forget"], dtype=object), allow_pickle=True)


def _not_finite(path):
    rows = np.load(path).copy()
    rows[3, 2] = np.nan
    np.save(path, rows)


def _other_shape(path):
    np.save(path, np.ones((7, 8)))


@pytest.mark.parametrize(
    ("spoil", "phrase"),
    [
        (_truncated, "must be a sound .npy file"),
        (_empty, "must be a sound .npy file"),
        (_text_rows, "must hold real numbers"),
        (_complex_rows, "must hold real numbers"),
        (_pickled, "must be a sound .npy file"),
        (_not_finite, "must be finite; got NaN or inf in 1 rows"),
        (_other_shape, "must have the same shape"),
    ],
)
def test_a_bad_npy_is_refused(run, tmp_path, spoil, phrase):
    words = write_rows(tmp_path, make_rows())
    spoil(tmp_path / "oracle" / "forget.npy")
    assert_refused(tmp_path, run(*words), phrase, "oracle")


def _pickle_inside(path):
    np.savez(path, values=np.array([[{}]], dtype=object), allow_pickle=True)


def _zip_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("values.npy", "w") as entry:
        np.lib.format.write_array_header_1_0(entry, {"descr": "<f8", "fortran_order": False, "shape": (60, 1 << 17)})
        for _ in range(60):
            entry.write(bytes(1 << 20))


def _cut_zip(path):
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("spoil", "phrase"),
    [
        (_pickle_inside, "must hold numbers and text only"),
        (_zip_bomb, "must not unfold to more than 100 times its size"),
        (_cut_zip, "must be a sound .npz file"),
    ],
)
def test_a_bad_npz_is_refused(run, tmp_path, spoil, phrase):
    words = write_rows(tmp_path, make_rows(), ".npz")
    spoil(tmp_path / "unlearned" / "retain.npz")
    assert_refused(tmp_path, run(*words), phrase, "unlearned/retain.npz")


@pytest.mark.parametrize("ending", [".parquet", ".safetensors", ".pt"])
def test_other_truncated_files_are_refused(run, tmp_path, ending):
    words = write_rows(tmp_path, make_rows(), ending)
    _truncated(tmp_path / "unlearned" / f"forget{ending}")
    assert_refused(tmp_path, run(*words), f"unlearned/forget{ending}")


@pytest.mark.parametrize("left_out", [("unlearned", "forget"), ("oracle", "retain"), ("original", "forget")])
def test_a_missing_side_is_refused(run, tmp_path, left_out):
    rows = {key: value for key, value in make_rows().items() if key != left_out}
    answer = run(*write_rows(tmp_path, rows))
    assert_refused(tmp_path, answer, f"{left_out[0]} must hold {left_out[1]}.*")


def test_held_out_records_are_given_for_every_model_or_none(run, tmp_path):
    rows = {key: value for key, value in make_rows().items() if key != ("original", "held_out")}
    assert_refused(tmp_path, run(*write_rows(tmp_path, rows)), "held_out must be given for every model or for none")


def test_embeddings_in_place_of_the_toml_point_to_the_options(run, tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(2))
    assert_refused(tmp_path, run("rows.npy"), "Embeddings go into --unlearned and --oracle, as folders")
    (tmp_path / "unlearned").mkdir()
    assert_refused(tmp_path, run("unlearned"), "got a folder. Folders of embeddings go into --unlearned")


def test_nothing_given_is_misuse(run, tmp_path):
    phrase = "must be given a TOML file, or --unlearned and a folder of embeddings; got neither"
    assert_refused(tmp_path, run(), phrase)
    assert_refused(tmp_path, run("--oracle", "oracle"), phrase)


def test_a_folder_that_is_not_there_is_named(run, tmp_path):
    assert_refused(tmp_path, run("--unlearned", "nowhere"), "nowhere must be a folder with forget.*")


def test_out_must_be_a_folder(run, tmp_path):
    (tmp_path / "taken").write_text("")
    words = write_rows(tmp_path, make_rows())
    assert_refused(tmp_path, run(*words, "--out", tmp_path / "taken"), "--out must be a folder; got the file")
    assert_refused(tmp_path, run(*words, "--out", tmp_path / "taken" / "in"), "must be writable; got: Not a directory")


# Groups


def test_names_of_records_come_from_a_file(run, tmp_path):
    names = [f"user-{number}" for number in range(SIZES["forget"])]
    (tmp_path / "ids.csv").write_text("id,age\n" + "".join(f"{name},3\n" for name in names))
    run(*write_rows(tmp_path, make_rows()), "--ids", tmp_path / "ids.csv", "--out", tmp_path / "out")
    assert sorted(Report.load(tmp_path / "out").records["id"]) == sorted(names)
    (tmp_path / "ids.csv").write_text("idd,age\n" + "".join(f"{name},3\n" for name in names))
    code, _, err = run(*write_rows(tmp_path, make_rows()), "--ids", tmp_path / "ids.csv", "--out", tmp_path / "out")
    assert code == 2
    assert "must have a column id, or one column only; got idd, age. Rename 'idd' to 'id'?" in err


def test_json_alone_is_on_stdout_and_details_on_stderr(run, tmp_path):
    words = (*write_rows(tmp_path, make_rows()), "--out", tmp_path / "out")
    _, out, err = run(*words, "--json", "-v")
    assert json.loads(out)["verdict"] == Report.load(tmp_path / "out").verdict
    assert f"ruler {ruler.__version__}, python " in err
    assert f"unlearned forget: ({SIZES['forget']}, " in err
    assert "time: " in err
    _, out, err = run(*words, "-q")
    assert (out, err) == ("", "")


@pytest.mark.parametrize("ending", ["csv", "bare.csv", "parquet", "npy", "npz"])
def test_groups_come_from_a_file(run, tmp_path, ending):
    labels = [f"person {row // 2}" for row in range(SIZES["forget"])]
    path = tmp_path / f"groups.{ending}"
    if ending == "csv":
        path.write_text("record,group\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels)))
    elif ending == "bare.csv":
        path.write_text("\n".join(labels))
    elif ending == "parquet":
        import pandas as pd

        pd.DataFrame({"group": labels}).to_parquet(path)
    else:
        np.save(path, labels) if ending == "npy" else np.savez(path, forget=labels)
    code, _, err = run(*write_rows(tmp_path, make_rows()), "--groups", path, "--out", tmp_path / "out")
    assert code in (0, 1, 3), err
    assert len(json.loads((tmp_path / "out" / "report.json").read_text())["groups"]) == SIZES["forget"] // 2


def test_a_group_on_two_sides_of_the_file_makes_the_audit_invalid(run, tmp_path):
    n_forget, n_retain = SIZES["forget"], SIZES["retain"]
    lines = [("forget", row) for row in range(n_forget)] + [("retain", row + n_forget - 1) for row in range(n_retain)]
    (tmp_path / "groups.csv").write_text("side,group\n" + "".join(f"{side},{label}\n" for side, label in lines))
    code, out, _ = run(*write_rows(tmp_path, make_rows()), "--groups", tmp_path / "groups.csv")
    assert code == 2
    assert "shared_groups" in out


@pytest.mark.parametrize(
    ("name", "text", "phrase"),
    [
        ("groups.csv", "", "got an empty file"),
        ("groups.csv", 'group\na\n\n""\n', "none missing"),
        ("groups.csv", "group\na\na,b\n", "at most the 1 fields of its header"),
        ("groups.csv", "side,group\nhidden,a\n", "must name the sides forget, retain, held_out; got 'hidden'"),
        ("groups.csv", "name,person\nx,a\n", "must have a column group"),
        ("groups.csv", "side,group\nforget\n", "none missing"),
        ("groups.txt", "a", "must end in one of .csv, .parquet, .npy, .npz"),
    ],
)
def test_bad_groups_are_refused(run, tmp_path, name, text, phrase):
    (tmp_path / name).write_text(text)
    words = write_rows(tmp_path, make_rows())
    assert_refused(tmp_path, run(*words, "--groups", tmp_path / name), phrase)


# TOML


def write_toml(folder, text, name="audit.toml"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_a_toml_of_embeddings_lies_beside_its_files(run, tmp_path):
    there = tmp_path / "evidence"
    there.mkdir()
    write_rows(there, make_rows(left=1.0))
    config = write_toml(
        there,
        """
        [embeddings]
        unlearned = "unlearned"
        oracle = ["oracle"]
        original = "original"
        [settings]
        alpha = 0.01
        limit = 0.3
        limit_chosen_by = "the data protection officer, before the audit"
        n_permutations = 199
        """,
    )
    code, _, err = run(config, "--limit", "0.15", "--out", tmp_path / "out")
    assert code == 1, err
    settings = json.loads((tmp_path / "out" / "report.json").read_text())["settings"]
    assert settings["alpha"] == 0.01
    assert settings["limit"] == 0.15, "an option counts more than the file"
    assert settings["limit_chosen_by"] == "the data protection officer, before the audit"
    assert settings["n_permutations"] == 199
    assert_refused(tmp_path / "elsewhere", run(config, "--layer", "2"), "--layer must be used with [models]")


PROJECT = """
import numpy as np
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

def load():
    rng = np.random.default_rng(0)
    sides = {"forget": 60, "retain": 200, "held_out": 80}
    return {side: (rng.normal(size=(n, 6)).astype("float32"), rng.integers(2, size=n)) for side, n in sides.items()}

def load_grouped():
    return {**load(), "groups": np.arange(60) // 2}

def fail():
    raise ValueError("no data today")

def wrong():
    return {"forget": 1}

def load_old():
    return {"forget": 1, "retain": 2, "test": 3}

NUMBER = 3
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a user's code and three checkpoints; the module gets a name of its own each time."""
    folder = tmp_path / "project"
    folder.mkdir()
    name = f"their_code_{abs(hash(str(tmp_path)))}"
    (folder / f"{name}.py").write_text(PROJECT)
    namespace = {}
    exec(compile(PROJECT, "project", "exec"), namespace)
    for seed, model in enumerate(MODELS):
        net = namespace["build"]()
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        torch.save(net.state_dict(), folder / f"{model}.pt")
    return folder, name


def write_project_toml(project, *, factory="build", data='factory = "{name}:load"', extra=""):
    folder, name = project
    text = f"""
{extra}
[models]
factory = "{name}:{factory}"
unlearned = "unlearned.pt"
oracle = "oracle.pt"
original = "original.pt"
[data]
{data.format(name=name)}
[settings]
n_permutations = 99
"""
    path = folder / "audit.toml"
    path.write_text(text)
    return path


def test_a_toml_of_models_embeds_and_audits(run, tmp_path, project):
    before = list(sys.path)
    code, _, err = run(write_project_toml(project), "--out", tmp_path / "out")
    assert code in (0, 1, 3), err
    assert sys.path == before
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert set(report["answers"]) == set(MODELS)
    assert report["metrics"]["m2"]["control"]["kind"] == "held-out"
    assert report["provenance"]["files"]["unlearned"].endswith("unlearned.pt")


def test_a_toml_may_name_several_oracles_and_layers(run, tmp_path, project):
    config = write_project_toml(project)
    several = config.read_text().replace(
        'oracle = "oracle.pt"', 'oracle = ["oracle.pt", "unlearned.pt"]\nlayer = ["0", "1"]'
    )
    config.write_text(several.replace('unlearned = "unlearned.pt"', 'unlearned = "original.pt"'))
    code, _, err = run(config, "--out", tmp_path / "out")
    assert code in (0, 1, 3), err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [layer["layer"] for layer in report["metrics"]["m4"]["layers"]] == ["0", "1"]
    assert report["provenance"]["files"]["oracle 2"].endswith("unlearned.pt")
    code, _, err = run(config, "--layer", "1", "--out", tmp_path / "one")
    assert code in (0, 1, 3), err
    report = json.loads((tmp_path / "one" / "report.json").read_text())
    assert report["metrics"]["m4"]["layer"] == "1"


def test_data_and_groups_come_from_files_too(run, tmp_path, project):
    folder, _ = project
    rng = np.random.default_rng(0)
    inputs = {
        side: rng.normal(size=(n, 6)).astype("float32")
        for side, n in (("forget", 60), ("retain", 200), ("held_out", 80))
    }
    np.savez(folder / "forget.npz", inputs=inputs["forget"], labels=np.zeros(60, int), ids=[f"p{i}" for i in range(60)])
    np.savez(folder / "retain.npz", inputs=inputs["retain"], labels=np.zeros(200, int))
    np.save(folder / "held_out.npy", inputs["held_out"])
    np.save(folder / "groups.npy", np.arange(60) // 2)
    files = 'forget = "forget.npz"\nretain = "retain.npz"\nheld_out = "held_out.npy"'
    config = write_project_toml(project, data=files, extra='groups = "groups.npy"')
    code, _, err = run(config, "--out", tmp_path / "out")
    assert code in (0, 1, 3), err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert sorted(report["answers"]["unlearned"]) == ["forget_accuracy", "retain_accuracy"]
    assert len(report["groups"]) == 30


def test_the_data_factory_may_give_groups(run, tmp_path, project):
    code, _, err = run(write_project_toml(project, data='factory = "{name}:load_grouped"'), "--out", tmp_path / "out")
    assert code in (0, 1, 3), err
    np.save(project[0] / "groups.npy", np.arange(60))
    both = write_project_toml(project, data='factory = "{name}:load_grouped"', extra='groups = "groups.npy"')
    assert_refused(tmp_path / "elsewhere", run(both), "groups must come from data.factory or from a file; got both")


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"factory": "nothing"}, "models.factory must name a function of their_code"),
        ({"factory": "NUMBER"}, "'NUMBER', which is not one"),
        ({"factory": "fail"}, "must run without arguments; got ValueError: no data today."),
        ({"factory": "wrong"}, "models.factory must return a torch.nn.Module; got dict"),
        ({"data": 'factory = "{name}:fail"'}, "no data today"),
        ({"data": 'factory = "{name}:wrong"'}, "data.factory must return a dict with forget and retain"),
        ({"data": 'factory = "{name}:load_old"'}, "got test. Rename it to held_out"),
        ({"data": 'factory = "no_such_module:load"'}, "No module named 'no_such_module'"),
        ({"data": 'factory = "load"'}, "data.factory must be 'module:function'; got 'load'"),
    ],
)
def test_faults_in_the_users_code_are_said_in_a_line(run, tmp_path, project, options, phrase):
    assert_refused(tmp_path, run(write_project_toml(project, **options)), phrase)


def test_weights_of_another_architecture_are_refused(run, tmp_path, project):
    torch.save(torch.nn.Linear(2, 2).state_dict(), project[0] / "oracle.pt")
    answer = run(write_project_toml(project))
    assert_refused(tmp_path, answer, "oracle.pt must hold the weights of the oracle model", "Missing key(s)")


def test_a_pickled_model_is_not_opened(run, tmp_path, project):
    torch.save(torch.nn.Linear(2, 2), project[0] / "oracle.pt")
    assert_refused(tmp_path, run(write_project_toml(project)), "needs pickled code, which is not run")


def test_files_are_named_in_one_place(run, tmp_path):
    words = write_rows(tmp_path, make_rows())
    config = write_toml(tmp_path, "[embeddings]\nunlearned = 'unlearned'")
    assert_refused(tmp_path, run(config, *words), "got both. Leave one of them out")


def test_a_sub_folder_of_shards_is_a_side(run, tmp_path):
    words = write_rows(tmp_path, make_rows())
    code, expected, _ = run(*words)
    for model in MODELS:
        whole = np.load(tmp_path / model / "retain.npy")
        (tmp_path / model / "retain.npy").unlink()
        (tmp_path / model / "retain").mkdir()
        for i, part in enumerate(np.array_split(whole, 4)):
            np.save(tmp_path / model / "retain" / f"rows-{i}.npy", part)
    assert run(*words)[:2] == (code, expected)


def test_ranks_among_a_sample_say_how_far_off_they_can_be(run, tmp_path):
    _, out, _ = run(*write_rows(tmp_path, make_rows(sizes=MANY)), "--n-reference", "150")
    assert "M4 was computed with 150 retain records drawn at random" in " ".join(out.split())


@pytest.fixture
def ray(monkeypatch):
    """A stand-in for a cluster of two nodes, one of which has a GPU."""
    ray = FakeRay({"CPU": 4.0}, {"CPU": 8.0, "GPU": 1.0})
    monkeypatch.setattr("ruler.neighbors.ray.connect", lambda n_cpus: nullcontext(ray))
    return ray


def test_a_cluster_is_told_what_a_job_takes(run, tmp_path, ray):
    words = write_rows(tmp_path, make_rows())
    code, expected, _ = run(*words)
    assert not ray.asked
    found, out, _ = run(*words, "--executor", "ray", "--job-cpus", "2")
    assert (found, out) == (code, expected)
    assert {(asked["num_cpus"], asked["num_gpus"]) for asked in ray.asked} == {(2, 0)}
    assert {pair.device for pair in ray.pairs} == {None}


def test_with_a_share_of_a_gpu_tasks_run_on_one(run, tmp_path, ray):
    words = write_rows(tmp_path, make_rows())
    code, expected, _ = run(*words)
    found, out, _ = run(*words, "--executor", "ray", "--job-gpus", "0.5")
    assert (found, out) == (code, expected)
    assert {(asked["num_cpus"], asked["num_gpus"]) for asked in ray.asked} == {(1, 0.5)}
    assert {pair.device for pair in ray.pairs} == {"cuda"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--job-cpus", "2"], "--job-cpus must be used with --executor ray; got --executor local"),
        (["--job-gpus", "0.5"], "--job-gpus must be used with --executor ray; got --executor local"),
        (["--executor", "ray", "--job-cpus", "0"], "job-cpus must be a whole number of at least 1"),
        (["--executor", "ray", "--job-gpus", "2"], "job-gpus must be above 0 and at most 1"),
        (["--executor", "ray", "--job-cpus", "9"], "the cluster must have a node with 9 CPU for a job"),
        (["--executor", "slurm"], "local, ray; got 'slurm'"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(run, tmp_path, ray, words, message):
    assert_refused(tmp_path, run(*write_rows(tmp_path, make_rows()), *words), message)


def test_a_cluster_that_loses_its_workers_is_told_in_one_line(run, tmp_path, ray, monkeypatch):
    ray.failure = WorkerCrashedError("The worker died unexpectedly.")
    answer = run(*write_rows(tmp_path, make_rows()), "--executor", "ray")
    assert_refused(tmp_path, answer, "ruler: a task must end within 10 retries")
