"""Every example of docs/integrations.md runs with the package that it is for."""

import pytest
from tests.test_docs import ROOT, read_sections, run_section

SECTIONS = [
    pytest.param(files, blocks, id=title) for title, files, blocks in read_sections(ROOT / "docs" / "integrations.md")
]


@pytest.mark.parametrize(("files", "blocks"), SECTIONS)
def test_section_runs_and_prints_what_it_shows(files, blocks, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "wandb-data"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "wandb-config"))
    try:
        run_section(files, blocks, tmp_path, monkeypatch)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "ruler":
            raise
        pytest.skip(f"needs the package {error.name}")


def test_every_hook_has_its_example():
    shown = "".join(block.body for _, _, blocks in read_sections(ROOT / "docs" / "integrations.md") for block in blocks)
    hooks = {path.stem for path in (ROOT / "src" / "ruler" / "hooks").glob("*.py")} - {"__init__", "numbers", "steps"}
    assert {name for name in hooks if f"from ruler.hooks.{name} import" not in shown} == set()
