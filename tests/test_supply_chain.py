"""Every package that an environment gets is pinned, and every pin of a release has hashes."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OF_CUDA = ("cuda-", "nvidia-", "triton")  # torch's wheels pin these themselves


def read_pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", text, flags=re.MULTILINE))


def list_own(extra: str) -> Iterator[Requirement]:
    """What an extra of ours asks for, with the extras that it names."""
    for line in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            for inner in requirement.extras:
                yield from list_own(inner)
        else:
            yield requirement


def list_installed(wanted: list[Requirement]) -> set[str]:
    """Names of all packages that these need here."""
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        for extra in ("", *requirement.extras):
            name = canonicalize_name(requirement.name)
            if (name, extra) not in seen:
                seen.add((name, extra))
                needs = map(Requirement, metadata.requires(name) or [])
                wanted += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def test_constraints_pin_every_package_of_the_setup() -> None:
    wanted = [*map(Requirement, PROJECT["dependencies"]), *list_own("dev")]
    absent = [one.name for one in wanted if not is_installed(one.name)]
    if absent:
        pytest.skip(f"`make setup` did not run since these were added: {', '.join(absent)}")
    names = {name for name in list_installed(wanted) if not name.startswith(OF_CUDA)}
    assert len(names) > 90
    assert names - read_pins("constraints.txt").keys() == set()


def is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_constraints_hold_no_build_of_torch_and_no_place() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"^torch==[\d.]+$", text, flags=re.MULTILINE)
    assert "+" not in text
    assert "://" not in text


@pytest.mark.parametrize("name", ["requirements/runtime.lock", "requirements/tools.lock"])
def test_every_pin_of_a_lock_has_hashes_and_no_place(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert len(pins) == len(read_pins(name)) > 20
    assert [pin for pin in pins if "--hash=sha256:" not in pin] == []
    assert "://" not in text


def test_the_lock_and_the_constraints_agree() -> None:
    locked, pinned = read_pins("requirements/runtime.lock"), read_pins("constraints.txt")
    assert {name: pin for name, pin in locked.items() if pinned.get(name, pin) != pin} == {}
