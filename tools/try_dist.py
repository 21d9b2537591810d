"""Install what `make dist` built as users would, each time in an empty environment, and use it.

Wheel and sdist without extras, the wheel without torch, and the wheel with ``[all]``: ``python tools/try_dist.py``, by
the standard library alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    "src/ruler/core/_version.py",
    "src/ruler/py.typed",
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "Makefile",
    "docs/index.md",
    "tests/test_docs.py",
}

BARE = """
import sys
import numpy as np
import ruler

assert "site-packages" in ruler.__file__, ruler.__file__
random = np.random.default_rng(0)
sides = tuple(random.normal(size=(n, 8)) for n in (40, 100, 60))
assert ruler.m1(sides[0], sides[0]) == 1.0
assert ruler.find_neighbors(sides[0], sides[1], k=2).index.shape == (40, 2)
assert len(ruler.all_metrics(*sides[:2], *sides[:2], sides[0])) >= 4
try:
    ruler.audit_models(None, forget=sides[0], retain=sides[1])
except ImportError as error:
    assert "ruler-audit[" in str(error), error
else:
    raise SystemExit("without torch, models cannot be audited")
assert not {"torch", "pandas", "typer"} & sys.modules.keys()
print("ruler", ruler.__version__)
"""

WITHOUT_TORCH = """
from importlib.util import find_spec
from pathlib import Path
import numpy as np

assert find_spec("torch") is None
random = np.random.default_rng(0)
for name in ("oracle", "unlearned"):
    Path(name).mkdir(exist_ok=True)
    for side, n in {"forget": 40, "retain": 100, "held_out": 60}.items():
        rows = np.random.default_rng(n).normal(size=(n, 8))
        rows += 0.1 * random.normal(size=rows.shape) + (name == "unlearned" and side == "forget")
        np.save(f"{name}/{side}.npy", rows)
"""


def make_environment(folder: Path, what: str) -> Path:
    """The folder of the programs of a new environment that holds what is named, by pip."""
    venv.create(folder, clear=True, with_pip=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c",
        ROOT / "constraints.txt", what, folder=folder)  # fmt: skip
    return programs


def run(*words: object, folder: Path, expected: int = 0) -> None:
    """Run a program there, away from the checkout; end if it does not end as expected."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    status = subprocess.run([str(word) for word in words], cwd=folder, env=environment, check=False).returncode
    if status != expected:
        sys.exit(f"{' '.join(map(str, words))[:300]} ended with {status}, not {expected}")


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel holds every file of the package, the sdist its sources too, and they have one version with the SBOM."""
    with zipfile.ZipFile(wheel) as file:
        packed = file.namelist()
    with tarfile.open(sdist) as archive:
        sources = [name.split("/", 1)[-1] for name in archive.getnames()]
    ours = {
        name.removeprefix("src/") for name in sources if name.startswith("src/ruler/") and "." in name.split("/")[-1]
    }
    absent = sorted(ours - set(packed)) + sorted(SOURCES - set(sources))
    strangers = [name for name in packed if not name.startswith("ruler")]
    if absent or strangers:
        sys.exit(f"absent: {absent}; should not be in the wheel: {strangers}")
    bill = json.loads((wheel.parent / "ruler-audit.cdx.json").read_text(encoding="utf-8"))
    versions = {
        wheel.name.split("-")[1],
        sdist.name.removesuffix(".tar.gz").split("-")[-1],
        bill["metadata"]["component"]["version"],
    }
    if len(versions) != 1:
        sys.exit(f"wheel, sdist and SBOM must have one version; got {', '.join(sorted(versions))}")


def main() -> None:
    """Try the wheel and the sdist of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder of wheel and sdist")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "clean", help="folder for the environments")
    parser.add_argument("--only", nargs="*", default=["contents", "wheel", "sdist", "no-torch", "all"])
    given = parser.parse_args()
    (wheel,), (sdist,) = given.dist.resolve().glob("*.whl"), given.dist.resolve().glob("*.tar.gz")
    for name in given.only:
        start, folder = time.perf_counter(), given.work.resolve() / name
        if name == "contents":
            check_contents(wheel, sdist)
        elif name in ("wheel", "sdist"):
            programs = make_environment(folder, str(wheel if name == "wheel" else sdist))
            run(programs / "python", "-c", BARE, folder=folder)
        elif name == "no-torch":
            programs = make_environment(folder, f"{wheel}[report,sign,cli]")
            run(programs / "python", "-c", WITHOUT_TORCH, folder=folder)
            run(programs / "ruler", "audit", "--unlearned", "unlearned", "--oracle", "oracle", "--out", "report", "-q",
                folder=folder, expected=1)  # fmt: skip
            run(programs / "ruler", "verify", "report", folder=folder)
        else:
            programs = make_environment(folder, f"{wheel}[all]")
            run(programs / "ruler", "--version", folder=folder)
            run(programs / "ruler", "demo", "--out", "demo", folder=folder)
        print(f"{name}: works ({time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
