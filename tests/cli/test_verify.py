"""`ruler keygen`, `ruler audit --sign` and `ruler verify` as a user runs them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import ruler
import ruler.cli
from ruler import Report


@pytest.fixture
def bundle(tmp_path):
    """Folders of embeddings, and a TOML file that names them and says who ran the audit."""
    random = np.random.default_rng(0)
    rows = {side: random.normal(size=(n, 6)) for side, n in (("forget", 40), ("retain", 90), ("held_out", 80))}
    for model, shift in (("unlearned", 0.8), ("oracle", 0.0)):
        (tmp_path / model).mkdir()
        for side, part in rows.items():
            moved = part + 0.1 * random.normal(size=part.shape) + (shift if side == "forget" else 0.0)
            np.save(tmp_path / model / f"{side}.npy", moved)
    (tmp_path / "audit.toml").write_text(
        '[embeddings]\nunlearned = "unlearned"\noracle = "oracle"\n'
        '[settings]\nlimit_chosen_by = "the data protection officer, 3 March"\nn_permutations = 99\n'
        '[evidence]\nrun_by = "A. Auditor <script>"\nrequest = "DSR-17"\noracle_made = "retrained from seed 0"\n'
    )
    return tmp_path / "audit.toml"


def test_a_sealed_report_is_verified(ruler_command, bundle, tmp_path):
    code, out, _ = ruler_command("keygen", "--out", "keys")
    assert code == 0
    assert "key id: " in out
    code, _, err = ruler_command("audit", bundle, "--sign", "keys/ruler-key.pem", "--also", "junit", "--out", "report")
    assert code == 1, err  # residual
    code, out, err = ruler_command("verify", "report", "--key", "keys/ruler-key.pub.pem")
    assert (code, err) == (0, "")
    assert "holds  signature: The report was signed by the key" in out
    assert out.endswith("Everything that was checked holds.\n")
    code, out, _ = ruler_command("verify", "report")
    assert code == 0
    assert "Not checked: signature." in out


def test_what_was_changed_is_said_and_ends_with_1(ruler_command, bundle, tmp_path):
    ruler_command("audit", bundle, "--out", "report")
    page = tmp_path / "report" / "report.html"
    page.write_text(page.read_text().replace("residual", "erased"))
    code, out, _ = ruler_command("verify", "report")
    assert code == 1
    assert "DOES NOT HOLD  files: report.html was changed after the report was saved." in out
    assert "Do not rely on this report" in out


def test_names_of_added_files_cannot_steer_the_terminal(ruler_command, bundle, tmp_path):
    ruler_command("audit", bundle, "--out", "report")
    (tmp_path / "report" / "evil\x1b[2J.txt").touch()
    code, out, _ = ruler_command("verify", "report")
    assert code == 1
    assert "\x1b" not in out
    assert "evil" in out


@pytest.mark.parametrize("by_options", [True, False])
def test_an_audit_can_be_repeated_to_the_bit(ruler_command, bundle, by_options, tmp_path):
    words = ("--unlearned", "unlearned", "--oracle", "oracle", "--limit", "0.3") if by_options else (bundle.name,)
    ruler_command("audit", *words, "--seed", "3", "--out", "report")
    code, out, err = ruler_command("verify", "report", "--rerun")
    assert (code, err) == (0, ""), out
    assert "holds  rerun: The audit was repeated from its inputs and gives the same report, to the bit." in out
    rows = np.load(tmp_path / "unlearned" / "forget.npy")
    np.save(tmp_path / "unlearned" / "forget.npy", rows + 1e-9)
    code, out, _ = ruler_command("verify", "report", "--rerun")
    assert code == 1
    assert "The inputs are not those of the report: unlearned/forget.npy changed." in out
    (tmp_path / "unlearned" / "forget.npy").unlink()
    code, out, _ = ruler_command("verify", "report", "--rerun")
    assert code == 1
    assert "rerun: The audit could not be repeated." in out


def test_numbers_that_the_inputs_do_not_give_are_found_by_repeating(ruler_command, bundle, tmp_path):
    """A report that agrees with itself in all but its inputs, by somebody who ran RULER on other data."""
    ruler_command("audit", bundle, "--out", "report")
    saved = Report.load("report")
    random = np.random.default_rng(1)
    rows, oracle = (tuple(random.normal(size=(n, 6)) for n in (40, 90, 80)) for _ in range(2))
    other = ruler.audit(rows, oracle=oracle, settings=saved.settings)
    replace(other, provenance={**saved.provenance, "layers": []}, declared=saved.declared).save("forged")
    code, out, _ = ruler_command("verify", "forged")
    assert code == 0, out
    code, out, _ = ruler_command("verify", "forged", "--rerun")
    assert code == 1
    assert "The audit gives other records than records.parquet holds." in out
    assert "The audit gives another report.json; other are verdict, reason" in out


def test_a_report_that_does_not_hold_is_not_repeated(ruler_command, bundle, tmp_path):
    ruler_command("audit", bundle, "--out", "report")
    (tmp_path / "report" / "note.txt").touch()
    code, out, _ = ruler_command("verify", "report", "--rerun")
    assert code == 1
    assert "not checked  rerun: The audit was not repeated" in out


def test_an_audit_of_arrays_cannot_be_repeated_from_files(ruler_command, bundle):
    random = np.random.default_rng(1)
    ruler.audit(tuple(random.normal(size=(n, 6)) for n in (40, 90, 80))).save("report")
    code, out, _ = ruler_command("verify", "report", "--rerun")
    assert code == 1
    assert "made in Python, from arrays" in out


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (("verify", "nowhere"), "must be a folder that an audit wrote"),
        (("verify", ".", "--key", "no.pem"), "must be the public half of an Ed25519 key"),
        (("audit", "audit.toml", "--sign", "no.pem"), "must be the private half of an Ed25519 key"),
        (("audit", "audit.toml", "--also", "word"), "--also must be one of pdf, sarif, junit; got 'word'"),
    ],
)
def test_misuse_is_one_line_and_exit_2(ruler_command, bundle, tmp_path, words, phrase):
    code, out, err = ruler_command(*words)
    assert code == 2
    assert out == ""
    assert phrase in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "ruler-audit-report").exists()


def test_a_pdf_without_a_browser_is_refused_before_the_audit(ruler_command, bundle, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = ruler_command("audit", bundle, "--also", "pdf")
    assert code == 2
    assert "must be printed by Chromium; got none of chromium" in err


def test_keys_are_not_overwritten(ruler_command):
    assert ruler_command("keygen")[0] == 0
    code, _, err = ruler_command("keygen")
    assert code == 2
    assert "Keys are never overwritten" in err


def test_declarations_are_shown_as_declared(ruler_command, bundle, tmp_path):
    ruler_command("audit", bundle, "--out", "report")
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    assert content["declared"]["request"] == "DSR-17"
    page = (tmp_path / "report" / "report.html").read_text()
    declared = page[page.index('id="declared"') : page.index('id="carries"')]
    for words in (
        "A. Auditor &lt;script&gt;",
        "How the oracle was made",
        "the data protection officer, 3 March",
        "verified none of it",
    ):
        assert words in declared


def test_an_unknown_declaration_is_refused_with_the_near_one(ruler_command, bundle):
    bundle.write_text(bundle.read_text().replace("run_by", "ran_by"))
    code, _, err = ruler_command("audit", bundle)
    assert code == 2
    assert "Did you mean 'run_by'?" in err
