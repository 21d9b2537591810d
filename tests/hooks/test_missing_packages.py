"""Where a package is missing, one line says which extra to install."""

import subprocess
import sys

import pytest

CALLS = {
    "transformers": ("huggingface", "import ruler.hooks.huggingface"),
    "lightning": ("lightning", "import ruler.hooks.lightning"),
    "torchmetrics": ("torchmetrics", "import ruler.hooks.torchmetrics"),
    "mlflow": ("mlflow", "from ruler.hooks.mlflow import log_report; log_report(None)"),
    "wandb": ("wandb", "from ruler.hooks.wandb import log_report; log_report(None)"),
    "huggingface_hub": ("huggingface", "from ruler.hooks.model_card import list_results; list_results(None)"),
}


@pytest.fixture(scope="module")
def answers():
    lines = ["import sys", f"sys.modules.update(dict.fromkeys({list(CALLS)}))"]
    for _, call in CALLS.values():
        lines += [f"try: {call}", "except ImportError as error: print(error)"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return dict(zip(CALLS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("package", CALLS)
def test_the_extra_is_named(package, answers):
    assert answers[package].endswith(
        f'needs the package {package!r}. Run: pip install "ruler-audit[{CALLS[package][0]}]"'
    )
