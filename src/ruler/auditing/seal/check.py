"""Does a saved report hold? Files, seal, numbers, verdict and page, each checked from what the folder holds."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ruler.auditing.findings import Report
from ruler.auditing.report.files import load_report, render_files
from ruler.auditing.seal.consistency import find_contradictions
from ruler.auditing.seal.manifest import NAME, Manifest, describe_code, describe_content, read_canonical
from ruler.auditing.seal.signature import (
    SEAL_NAME,
    Envelope,
    is_signed_by,
    load_public_key,
    make_statement,
    name_key,
    open_envelope,
)
from ruler.auditing.verdict import decide
from ruler.core.errors import FileFormatError, UnknownNameError
from ruler.core.files import hash_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

TIMESTAMP_NAME = "seal.tsr"
_MOST_TIMESTAMP_BYTES = 1 << 20
_NOT_LISTED = {NAME, SEAL_NAME, TIMESTAMP_NAME}


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Args:
        name: What it is about, in one or two words.
        holds: Whether it does; None if it was not checked.
        message: In one or two plain sentences.
    """

    name: str
    holds: bool | None
    message: str


def check_report(folder: Path, *, key: Path | None = None) -> Iterator[Check]:
    """Check a saved report, the quickest and plainest checks first; what is not asked for is not computed.

    Args:
        folder: Of the report.
        key: Public key that must have signed it; None leaves the signature unchecked.

    Raises:
        FileFormatError: The folder or the key cannot be read: a misuse, not a finding.
    """
    if not folder.is_dir():
        raise FileFormatError(f"{folder} must be a folder that an audit wrote; got no folder there. Check the path.")
    public = None if key is None else load_public_key(key)
    try:
        manifest = read_canonical(Manifest, folder / NAME)
    except FileFormatError as error:
        yield Check("manifest", False, f"Nothing shows which files belong to this report. {error}")
        return
    yield from _check_files(folder, manifest)
    yield from _check_seal(folder, manifest, public)
    yield from _check_timestamp(folder)
    try:
        report = load_report(folder)
    except FileFormatError as error:
        yield Check("schema", False, f"The numbers break the report's schema or ranges. {error}")
        return
    yield Check("schema", True, "report.json and records.parquet follow the schema; all numbers lie in their ranges.")
    yield from _check_content(folder, manifest, report)
    faults = list(find_contradictions(report))
    for fault in faults:
        yield Check("numbers", False, fault)
    if not faults:
        yield Check("numbers", True, "Metrics, records, groups and plotted scores agree with each other.")
    yield from _check_verdict(report)
    yield from _check_pages(folder, manifest, report)


def _check_files(folder: Path, manifest: Manifest) -> Iterator[Check]:
    """Every file that the manifest names is there and unchanged, and there is no other."""
    found = {entry.name: entry for entry in os.scandir(folder)}
    is_sound = True
    for name, digest in manifest.files.items():
        entry = found.get(name)
        if entry is None or not entry.is_file(follow_symlinks=False):
            what = "is missing" if entry is None else "is no longer a plain file"
        elif hash_file(folder / name) != digest:
            what = "was changed after the report was saved"
        else:
            continue
        is_sound = False
        yield Check("files", False, f"{name} {what}.")
    for name in sorted(found.keys() - manifest.files.keys() - _NOT_LISTED):
        is_sound = False
        yield Check("files", False, f"{name!r} was added: the manifest does not name it.")
    missing = {"report.json", "report.html", "records.parquet"} - manifest.files.keys()
    if missing:
        is_sound = False
        yield Check("files", False, f"The manifest does not name {', '.join(sorted(missing))}.")
    if is_sound:
        yield Check("files", True, f"All {len(manifest.files)} files are as the manifest says, and there is no other.")


def _check_seal(folder: Path, manifest: Manifest, key: "Ed25519PublicKey | None") -> Iterator[Check]:
    path = folder / SEAL_NAME
    if not path.exists():
        unsigned = "The report is not signed: anyone could have made it, with its manifest."
        yield Check("signature", None if key is None else False, unsigned)
        return
    try:
        envelope = read_canonical(Envelope, path)
        statement = open_envelope(envelope)
        if statement != make_statement(manifest):
            yield Check("signature", False, "The seal is about another report, or another state of this one.")
            return
        signer = envelope.signatures[0].keyid
        if key is None:
            said = f"The seal names the key {signer}. Its signature was not checked: give the public key by --key."
            yield Check("signature", None, said)
        elif is_signed_by(envelope, key):
            yield Check("signature", True, f"The report was signed by the key {signer}.")
        else:
            other = f" The seal names the key {signer}." if signer != name_key(key) else ""
            yield Check("signature", False, f"The report was not signed by the key {name_key(key)}.{other}")
    except FileFormatError as error:
        yield Check("signature", False, f"The seal cannot be read. {error}")


def _check_timestamp(folder: Path) -> Iterator[Check]:
    """A time stamp (RFC 3161) must name the seal's hash; who signed it is for openssl to say."""
    path = folder / TIMESTAMP_NAME
    if not path.exists():
        return
    seal = folder / SEAL_NAME
    if not seal.is_file() or not path.is_file() or path.stat().st_size > _MOST_TIMESTAMP_BYTES:
        yield Check("time stamp", False, f"{TIMESTAMP_NAME} does not belong to a seal.")
        return
    stamp, sealed = path.read_bytes(), seal.read_bytes()
    digests = (hashlib.new(name, sealed).digest() for name in ("sha256", "sha384", "sha512"))
    if not any(bytes([4, len(digest)]) + digest in stamp for digest in digests):  # a DER octet string
        yield Check("time stamp", False, f"{TIMESTAMP_NAME} does not name this seal.")
        return
    yield Check(
        "time stamp",
        None,
        f"{TIMESTAMP_NAME} names this seal. Its own signature was not checked: run `openssl ts -verify -in "
        f"{TIMESTAMP_NAME} -data {SEAL_NAME} -CAfile CA.pem`.",
    )


def _check_content(folder: Path, manifest: Manifest, report: Report) -> Iterator[Check]:
    """What the manifest says of the report follows from the report; code and environment are taken as stated."""
    content = manifest.content
    own = describe_content(
        report,
        document=(folder / "report.json").read_bytes(),
        records=(folder / "records.parquet").read_bytes(),
    ).model_copy(update={"code": content.code, "environment": content.environment})
    wrong = [name for name, value in own if getattr(content, name) != value]
    if wrong:
        yield Check("manifest", False, f"The manifest contradicts report.json about {', '.join(wrong)}.")
    else:
        yield Check("manifest", True, "Verdict, settings, inputs, ids and groups are those that the manifest names.")


def _check_verdict(report: Report) -> Iterator[Check]:
    try:
        own = decide(report)
    except UnknownNameError as error:
        yield Check("verdict", False, f"The verdict cannot be recomputed: a metric is not installed here. {error}")
        return
    wrong = []
    if own.verdict != report.verdict:
        wrong.append(f"The numbers give the verdict {own.verdict}; the report says {report.verdict}.")
    elif own.reason != report.reason:
        wrong.append("The reason that the report gives for its verdict is not the one that its numbers give.")
    wrong += [
        f"The numbers of {name} give {metric.verdict}; the report says {report.metrics[name].verdict}."
        for name, metric in own.metrics.items()
        if metric.verdict != report.metrics[name].verdict
    ]
    wrong += [
        f"The reason given for {name} does not follow from its numbers."
        for name, metric in own.metrics.items()
        if metric.verdict == report.metrics[name].verdict and metric.reason != report.metrics[name].reason
    ]
    wrong += [
        f"After the attack {name}, the numbers give {attack.verdict}; the report says {report.attacks[name].verdict}."
        for name, attack in own.attacks.items()
        if attack.verdict != report.attacks[name].verdict or repr(attack) != repr(report.attacks[name])
    ]
    wrong += [
        f"What is said of the {name} does not follow from the numbers."
        for name in ("outputs", "layers")
        if repr(getattr(own, name)) != repr(getattr(report, name))
    ]
    if own.groups is not None and report.groups is not None and not own.groups.equals(report.groups):
        wrong.append("The verdicts of the groups do not follow from their numbers.")
    if repr(own.damage) != repr(report.damage):
        wrong.append("Whether the model still works does not follow from its numbers.")
    for fault in wrong:
        yield Check("verdict", False, fault)
    if not wrong:
        yield Check("verdict", True, f"The numbers give the verdict {report.verdict}, by RULER's rule.")


def _check_pages(folder: Path, manifest: Manifest, report: Report) -> Iterator[Check]:
    """The page, and the files for pipelines where there are any, say what report.json says, to the byte."""
    other = ""
    code = describe_code()
    if code.sha256 != manifest.content.code.sha256:
        other = (
            f" The report was made by other code (RULER {manifest.content.code.version}; this is {code.version}): "
            "compare with that version."
        )
    wrong = [
        name
        for name, content in render_files(report, manifest.fingerprint, manifest.files).items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != content
    ]
    for name in wrong:
        yield Check("page", False, f"{name} does not say what report.json says.{other}")
    if not wrong:
        yield Check("page", True, "report.html is what report.json gives, to the byte.")
    if "report.pdf" in manifest.files:
        yield Check("page", None, "report.pdf is unchanged since it was printed; what it says was not compared.")
