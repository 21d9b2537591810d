"""Is this the published set that it claims to be?"""

from typing import Protocol

from ruler.core.errors import DataMismatchError


class VerifiedSet(Protocol):
    """What is known beforehand about a set of images, faces or texts."""

    @property
    def key(self) -> str:
        """Name in code."""

    @property
    def title(self) -> str:
        """Name in the paper."""

    @property
    def content_hash(self) -> str:
        """Of the copy that the project's numbers were measured on."""

    @property
    def note(self) -> str:
        """What a reader must know about that copy."""

    @property
    def home_note(self) -> str:
        """What the download holds instead; empty where it is the same."""


def verify_content(entry: VerifiedSet, content_hash: str, mark: str, source: str) -> str:
    """The note that belongs to a copy of a published set.

    Args:
        entry: The set that it should be.
        content_hash: Of the copy.
        mark: What the copy says of itself; a download with other records than ours carries ``home_note``.
        source: Where the copy is from, for the error.

    Raises:
        DataMismatchError: Neither the copy measured here nor a marked download.
    """
    if content_hash == entry.content_hash:
        return entry.note
    if mark and mark == entry.home_note:
        return mark
    raise DataMismatchError(
        f"{entry.title} must be the copy that this project measured, or its download; got another from {source} "
        f"(content: {content_hash[:12]} instead of {entry.content_hash[:12]}). Load it by its path as data of your "
        f"own, or remove it and run: ruler data fetch {entry.key}"
    )
