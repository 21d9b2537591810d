"""seal.json: an in-toto statement about a report, signed with Ed25519 in a DSSE envelope; and the keys for it."""

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from ruler.auditing.findings import Verdict
from ruler.auditing.seal.manifest import NAME, Manifest, Part, hash_bytes, write_canonical
from ruler.core.errors import FileFormatError, InputError, shorten
from ruler.core.optional import load_optional

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SEAL_NAME = "seal.json"
KEY_NAME, PUBLIC_NAME = "ruler-key.pem", "ruler-key.pub.pem"
STATEMENT_TYPE: Literal["https://in-toto.io/Statement/v1"] = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Literal["https://in-toto.io/attestation/test-result/v0.1"] = (
    "https://in-toto.io/attestation/test-result/v0.1"
)
PAYLOAD_TYPE: Literal["application/vnd.in-toto+json"] = "application/vnd.in-toto+json"
_MOST_KEY_BYTES = 1 << 16
Result = Literal["PASSED", "WARNED", "FAILED"]
RESULTS: dict[Verdict, Result] = {
    "erased": "PASSED",
    "inconclusive": "WARNED",
    "residual": "FAILED",
    "displaced": "FAILED",
    "damaged": "FAILED",
    "invalid": "FAILED",
}


class Resource(Part):
    """A file or value by its name and SHA-256."""

    name: str
    digest: dict[Literal["sha256"], str]


class Predicate(Part):
    """The predicate: what came out, of which settings and inputs."""

    result: Result
    configuration: list[Resource]
    passedTests: list[str]  # noqa: N815 - the names are in-toto's
    warnedTests: list[str]  # noqa: N815
    failedTests: list[str]  # noqa: N815


class Statement(Part):
    """The in-toto statement: the files of the report, manifest.json first, and the result of the audit."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: list[Resource]
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"] = PREDICATE_TYPE  # noqa: N815
    predicate: Predicate


class Signature(Part):
    """A signature, and the SHA-256 of the public key that it can be checked with."""

    keyid: str
    sig: str


class Envelope(Part):
    """The whole of seal.json."""

    payload: str
    payloadType: Literal["application/vnd.in-toto+json"] = PAYLOAD_TYPE  # noqa: N815
    signatures: list[Signature] = Field(min_length=1, max_length=1)


def make_statement(manifest: Manifest) -> Statement:
    """What is signed: everything in it follows from the manifest."""
    result, content = RESULTS[manifest.content.verdict], manifest.content
    subjects = [(NAME, hash_bytes(write_canonical(manifest))), *sorted(manifest.files.items())]
    inputs = {"settings": content.settings, **content.inputs, **content.arrays, **content.names}
    tests = {name: [f"ruler audit: {content.verdict}"] if result == name else [] for name in RESULTS.values()}
    return Statement(
        _type=STATEMENT_TYPE,
        subject=[Resource(name=name, digest={"sha256": digest}) for name, digest in subjects],
        predicate=Predicate(
            result=result,
            configuration=[Resource(name=name, digest={"sha256": digest}) for name, digest in sorted(inputs.items())],
            passedTests=tests["PASSED"],
            warnedTests=tests["WARNED"],
            failedTests=tests["FAILED"],
        ),
    )


def sign(manifest: Manifest, key: "Ed25519PrivateKey") -> bytes:
    """The bytes of seal.json for a report with this manifest."""
    payload = write_canonical(make_statement(manifest))
    signature = Signature(keyid=name_key(key.public_key()), sig=_encode(key.sign(_join(payload))))
    return write_canonical(Envelope(payload=_encode(payload), signatures=[signature]))


def open_envelope(envelope: Envelope) -> Statement:
    """The statement in an envelope, whoever signed it.

    Raises:
        FileFormatError: Not a statement in canonical form.
    """
    payload = _decode(envelope.payload)
    try:
        statement = Statement.model_validate_json(payload)
    except ValidationError as error:
        raise FileFormatError(f"{SEAL_NAME} must hold an in-toto statement; got {shorten(error)}") from error
    if write_canonical(statement) != payload:
        raise FileFormatError(f"{SEAL_NAME} must hold canonical JSON; got other bytes.")
    return statement


def is_signed_by(envelope: Envelope, key: "Ed25519PublicKey") -> bool:
    """Whether this key signed the envelope."""
    exceptions = load_optional("cryptography.exceptions", "checking a signature")
    signature = envelope.signatures[0]
    if signature.keyid != name_key(key):
        return False
    try:
        key.verify(_decode(signature.sig), _join(_decode(envelope.payload)))
    except exceptions.InvalidSignature:
        return False
    return True


def make_keys(folder: Path) -> tuple[Path, Path]:
    """Write a new private key, readable by its owner alone, and its public key. Neither file is ever overwritten.

    Raises:
        InputError: A file of that name is there already, or the folder cannot be written.
    """
    ed25519 = load_optional("cryptography.hazmat.primitives.asymmetric.ed25519", "making keys")
    serialization: Any = load_optional("cryptography.hazmat.primitives.serialization", "making keys")
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    paths = folder / KEY_NAME, folder / PUBLIC_NAME
    for path in paths:
        if path.exists() or path.is_symlink():
            raise InputError(f"{path} must not exist; got a file. Keys are never overwritten: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content, mode in zip(paths, (private, public), (0o600, 0o644), strict=True):
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
                stream.write(content)
    except OSError as error:
        raise InputError(f"--out must be a folder that can be written; got {folder} ({error.strerror}).") from error
    return paths


def load_private_key(path: Path) -> "Ed25519PrivateKey":
    """The private key in a PEM file.

    Raises:
        FileFormatError: No such file, or not an unencrypted Ed25519 key.
    """
    key: Ed25519PrivateKey = _load_key(path, "private")
    return key


def load_public_key(path: Path) -> "Ed25519PublicKey":
    """The public key in a PEM file.

    Raises:
        FileFormatError: No such file, or not an Ed25519 key.
    """
    key: Ed25519PublicKey = _load_key(path, "public")
    return key


def name_key(key: "Ed25519PublicKey") -> str:
    """SHA-256 of a public key (its DER form): how a seal names who signed it."""
    serialization: Any = load_optional("cryptography.hazmat.primitives.serialization", "naming a key")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(serialization.Encoding.DER, form)).hexdigest()


def _load_key(path: Path, kind: Literal["private", "public"]) -> Any:
    serialization: Any = load_optional("cryptography.hazmat.primitives.serialization", "reading a key")
    ed25519: Any = load_optional("cryptography.hazmat.primitives.asymmetric.ed25519", "reading a key")
    rule = f"{path} must be the {kind} half of an Ed25519 key in PEM"
    if not path.is_file() or path.stat().st_size > _MOST_KEY_BYTES:
        raise FileFormatError(f"{rule}; got {'no such file' if not path.is_file() else 'a large file'}. {_ADVICE}")
    load = {"private": lambda pem: serialization.load_pem_private_key(pem, None)}.get(
        kind, serialization.load_pem_public_key
    )
    try:
        key = load(path.read_bytes())
    except Exception as error:  # parsers raise anything
        raise FileFormatError(f"{rule}; got {shorten(error)} {_ADVICE}") from error
    wanted = ed25519.Ed25519PrivateKey if kind == "private" else ed25519.Ed25519PublicKey
    if not isinstance(key, wanted):
        raise FileFormatError(f"{rule}; got another kind of key. {_ADVICE}")
    return key


_ADVICE = "Make one with: ruler keygen"


def _join(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    return b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    """The bytes of base64 text in its only canonical spelling."""
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FileFormatError(f"{SEAL_NAME} must hold base64; got {shorten(error)}") from error
    if _encode(content) != text:
        raise FileFormatError(f"{SEAL_NAME} must hold base64 in its canonical spelling; got another.")
    return content
