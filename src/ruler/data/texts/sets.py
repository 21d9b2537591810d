"""The text set of the clinical study: where it comes from and what it must contain."""

from dataclasses import dataclass
from typing import ClassVar

from ruler.core.registry import Registry


@dataclass(frozen=True)
class TextSet:
    """One published table of texts.

    Args:
        key: Name in code and of the file ``text/<key>.csv.gz``.
        title: Name in the paper.
        origin: Where it is published, in words.
        n_rows, n_texts, n_distinct: Rows listed, those with a text, and different texts among them.
        column, title_column: Where the texts and their titles stand.
        content_hash: SHA-256 of the texts in their order, see ``hash_texts``.
        note: What a reader of its numbers must know.
        home_note: Empty: there is no other version of it.
    """

    kind: ClassVar[str] = "text"
    key: str
    title: str
    origin: str
    n_rows: int
    n_texts: int
    n_distinct: int
    column: str
    title_column: str
    content_hash: str
    note: str = ""
    home_note: str = ""

    @property
    def file(self) -> str:
        """Where its file lies in a data folder."""
        return f"text/{self.key}.csv.gz"

    @property
    def size(self) -> str:
        """Texts, in words."""
        return f"{self.n_texts:,} texts, {self.n_distinct:,} distinct"


TEXT_SETS: Registry[TextSet] = Registry(
    "text set",
    {
        "mtsamples": TextSet(
            key="mtsamples",
            title="MTSamples",
            origin="mtsamples.com (Kaggle: tboyle10/medicaltranscriptions)",
            n_rows=4999,
            n_texts=4966,
            n_distinct=2357,
            column="transcription",
            title_column="sample_name",
            content_hash="2e2bfbf45b0c96c764f63b81fa2e4f14238eb5dea7a7f590d228bb4db23257be",
            note="4,966 transcriptions are listed, of which 2,357 are distinct",
        )
    },
)
