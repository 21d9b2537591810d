from pathlib import Path

import pytest
import torch

from ruler.core.errors import CheckpointError, InputError
from ruler.models import TabularMLP
from ruler.training.published import export_published, import_published, name_published


class Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("this must never run",)


@pytest.mark.parametrize("fraction", [None, 0.01, 0.1])
def test_a_model_survives_the_round_trip(tmp_path: Path, fraction: float | None) -> None:
    model = TabularMLP(5, n_classes=3, hidden=16)
    path = export_published(model, tmp_path / "new", "adult", 4, fraction)
    assert path.name == name_published("adult", 4, fraction)
    loaded = import_published(tmp_path / "new", "adult", 4, fraction)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), atol=0, rtol=0)
    assert not loaded.training


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"adult_seed0_orig\.pt must exist; got no such file"):
        import_published(tmp_path, "adult", 0)


def test_files_that_are_no_weights_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "adult_seed0_orig.pt"
    contents = (
        {"net.0.weight": torch.zeros(2, 2)},
        {"net.0.weight": torch.zeros(2, 2), "net.6.bias": torch.zeros(2)},
        Harmful(),
        [1, 2],
    )
    for content in contents:
        torch.save(content, path)
        with pytest.raises(CheckpointError, match="must hold the weights of a TabularMLP"):
            import_published(tmp_path, "adult", 0)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match="must hold the weights of a TabularMLP"):
        import_published(tmp_path, "adult", 0)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("fraction", [0.0, 0.005, 0.123, 1.0])
def test_fractions_without_a_file_name_are_refused(fraction: float) -> None:
    with pytest.raises(InputError, match=r"forget_fraction must be a whole percentage from 0\.01 to 0\.99"):
        name_published("adult", 0, fraction)
