"""Release notes from CHANGELOG.md, and the start of a release.

``python tools/release.py notes [VERSION]`` prints the notes of a version, by default the unreleased ones.
``python tools/release.py cut VERSION`` puts what is unreleased under that version and today's date, here and in
CITATION.cff. Read it, commit it, and set the tag: ``git tag -a vVERSION -m VERSION``. The tag is the version.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNRELEASED = "Unreleased"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


def read_notes(changelog: str, version: str = UNRELEASED) -> str:
    """What the changelog says about a version."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    found = {section.split("\n", 1)[0].split(" ")[0]: section.partition("\n")[2].strip() for section in sections}
    if version not in found:
        raise SystemExit(f"version must be one of {', '.join(found)}; got {version}.")
    return found[version]


def cut_version(changelog: str, version: str, day: str) -> str:
    """The changelog with what was unreleased under a version, and room for what comes next."""
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"version must be like 0.2.0 or 0.2.0rc1, without v; got {version}.")
    if f"## {version} " in changelog:
        raise SystemExit(f"version must be a new one; got {version}, which has notes.")
    if not read_notes(changelog).strip():
        raise SystemExit("there must be something to release; got no unreleased notes.")
    return changelog.replace(f"## {UNRELEASED}\n", f"## {UNRELEASED}\n\n## {version} ({day})\n", 1)


def cite_version(citation: str, version: str, day: str) -> str:
    """CITATION.cff with the version and the day of its release."""
    kept = re.sub(r"^(?:version|date-released):.*\n", "", citation, flags=re.MULTILINE)
    return kept.replace("license: MIT\n", f'version: "{version}"\ndate-released: {day}\nlicense: MIT\n', 1)


def main(words: list[str]) -> None:
    """Print notes, or cut a version."""
    changelog, citation = ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"
    if words[:1] == ["notes"] and len(words) < 3:
        print(read_notes(changelog.read_text(encoding="utf-8"), *words[1:]))
    elif words[:1] == ["cut"] and len(words) == 2:
        day = datetime.now(UTC).date().isoformat()
        cut = cut_version(changelog.read_text(encoding="utf-8"), words[1], day)
        changelog.write_text(cut, encoding="utf-8")
        citation.write_text(cite_version(citation.read_text(encoding="utf-8"), words[1], day), encoding="utf-8")
        print(f"Read CHANGELOG.md and CITATION.cff, commit them, and set the tag: git tag -a v{words[1]} -m {words[1]}")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
