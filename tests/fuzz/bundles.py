"""Bundles with traps: files that would run if something imported them, each of which leaves a mark when it does."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

SIZES = {"forget": 30, "retain": 90, "held_out": 60}
TRAPS = {
    "`regex.py`, `tqdm.py`, `numpy.py`, `helper.py`": ("regex", "tqdm", "numpy", "helper"),
    "`sitecustomize.py`, `usercustomize.py`": ("sitecustomize", "usercustomize"),
    "`conftest.py`": ("conftest",),
    "`trap.pth`": ("pth",),
    "a namespace package, `flash_attn/`": ("flash_attn",),  # one that transformers looks for
    "a package, `modeling_trap/`": ("package",),
    "a compiled module, `sentencepiece.so`": ("so",),
}
"""What lies in a bundle, and the marks that it would leave."""


def set_traps(folder: Path, marks: Path) -> None:
    def code(name: str) -> str:
        return f"from pathlib import Path\nPath({str(marks / name)!r}).touch()\n"

    for name in ("regex", "tqdm", "sitecustomize", "usercustomize", "conftest", "numpy", "helper"):
        (folder / f"{name}.py").write_text(code(name))
    (folder / "trap.pth").write_text(f"import pathlib; pathlib.Path({str(marks / 'pth')!r}).touch()\n")
    for name in ("flash_attn", "modeling_trap"):
        (folder / name).mkdir()
        (folder / name / "part.py").write_text(code(name))
    (folder / "modeling_trap" / "__init__.py").write_text(code("package"))
    library = folder / f"sentencepiece{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shutil.which("cc")
    if compiler is None:
        library.write_bytes(b"no library: importing it would end the run")
    else:
        source = f'#include <fcntl.h>\n__attribute__((constructor)) void run(void) {{ creat("{marks / "so"}", 0600); }}'
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source.encode(), check=True)


def write_embeddings(folder: Path) -> tuple[str, Path]:
    rng = np.random.default_rng(0)
    (folder / "model").mkdir()
    for side, n in SIZES.items():
        np.save(folder / "model" / f"{side}.npy", rng.normal(size=(n, 8)))
    return '[embeddings]\nunlearned = "model"\n', folder / "model"


def write_transformer(folder: Path) -> tuple[str, Path]:
    import transformers

    from ruler.core.readers.pretrained import quiet_transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fever", "cough", "pain", "rash"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=len(words), initializer_range=0.5, **sizes)
    with quiet_transformers():
        transformers.BertForSequenceClassification(config).save_pretrained(folder / "model")
    (folder / "model" / "vocab.txt").write_text("\n".join(words))
    rng = np.random.default_rng(0)
    for side, n in SIZES.items():
        lines = [" ".join(rng.choice(words[5:], 6)) for _ in range(n)]
        (folder / f"{side}.csv").write_text("\n".join(["text", *lines]))
    sides = "\n".join(f'{side} = "{side}.csv"' for side in SIZES)
    return f'[models]\nunlearned = "model"\n[data]\n{sides}\n', folder / "model"


def write_project(folder: Path) -> tuple[str, Path]:
    import torch

    rng = np.random.default_rng(0)
    (folder / "mine.py").write_text(
        "import tqdm, torch\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))\n"
    )
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    torch.save(net.state_dict(), folder / "model.pt")
    for side, n in SIZES.items():
        np.save(folder / f"{side}.npy", rng.normal(size=(n, 6)).astype("float32"))
    sides = "\n".join(f'{side} = "{side}.npy"' for side in SIZES)
    return f'[models]\nfactory = "mine:build"\nunlearned = "model.pt"\n[data]\n{sides}\n', folder


BUNDLES = {
    "embeddings": write_embeddings,
    "transformers folder": write_transformer,
    "code of its own": write_project,
}
"""Each writes a sound bundle, and returns its tables and the folder of the model."""


def audit_trapped(root: Path, kind: str) -> "subprocess.CompletedProcess[str]":
    """Audit a bundle with traps beside its TOML file and in its model's folder; marks are left in ``root/marks``."""
    bundle, marks = root / "bundle", root / "marks"
    bundle.mkdir(parents=True)
    marks.mkdir()
    tables, model = BUNDLES[kind](bundle)
    (bundle / "audit.toml").write_text(tables + "[settings]\nn_permutations = 99\n")
    for folder in {bundle, model}:
        set_traps(folder, marks)
    # -P: as the installed command, Python does not look for modules where the user happens to be
    command = [sys.executable, "-P", "-c", "import ruler.cli; ruler.cli.main()", "audit", "audit.toml", "--quiet"]
    return subprocess.run(command, cwd=bundle, capture_output=True, text=True, check=False)


def import_traps(root: Path) -> set[str]:
    """The marks that are left if all traps are imported on purpose: do they work?"""
    bundle, marks = root / "bundle", root / "marks"
    bundle.mkdir(parents=True)
    marks.mkdir()
    set_traps(bundle, marks)
    modules = "site, regex, tqdm, numpy, helper, conftest, usercustomize, flash_attn.part, modeling_trap"
    code = f"import {modules}; site.addsitedir('.'); import sentencepiece"
    variables = os.environ | {"PYTHONPATH": str(bundle)}
    subprocess.run([sys.executable, "-c", code], cwd=bundle, env=variables, capture_output=True, check=False)
    return {mark.name for mark in marks.iterdir()}
