"""Tables of prompts and completions that a configuration names -> tokens for a language model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruler.core.arithmetic import iterate_blocks
from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.datasets import check_table, is_dataset_folder, only_part, read_dataset
from ruler.core.readers.safety import check_at_most
from ruler.core.readers.tables import read_parquet, read_rows

ENDINGS = (".csv", ".jsonl", ".parquet")
_BESIDE = ("id", "group", "strata")
_USUAL_MAXIMUM = 32_768
_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class PromptForm:
    """How records of prompt and completion are written.

    Args:
        columns: What a table calls ``prompt``, ``completion``, ``span`` and ``strata``, where it calls them otherwise.
        template: Join them by the tokenizer's chat template.
        form: Join them by this text otherwise, such as ``"Q: {prompt} A: {completion}"``; None: nothing between.
        max_tokens: Of one record; None takes what the model reads, at most 32,768.
    """

    columns: Mapping[str, str | None]
    template: bool = False
    form: str | None = None
    max_tokens: int | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether the configuration speaks of prompts or completions."""
        named = any(self.columns.get(key) for key in ("prompt", "completion", "span"))
        return named or self.template or self.form is not None or self.max_tokens is not None

    def name(self, key: str) -> str:
        """The column that holds ``prompt``, ``completion``, ``span``, ``id``, ``group`` or ``strata``."""
        return self.columns.get(key) or key

    def describe(self) -> str:
        """How prompt and completion are joined, for the report."""
        if self.template:
            return "prompt and completion by the tokenizer's chat template"
        return f"prompt and completion as {self.form or '{prompt}{completion}'!r}"

    def load(self, path: Path, tokenizer: Any, *, longest: int, is_apart: bool) -> list[dict[str, Any]]:
        """Records of one side, as `embed` takes them: tokens, labels and what stands beside them.

        Args:
            path: A ``.csv``, ``.jsonl`` or ``.parquet`` file, or a Hugging Face dataset saved on disk in one part.
            tokenizer: Of the model.
            longest: Tokens that the model reads.
            is_apart: An encoder reads the prompt and a decoder the completion.
        """
        from ruler.embeddings.prompts import PLAIN, encode_prompts

        rows = self._check(read_prompt_rows(path), path)
        has_spans = self.columns.get("span") is not None or "span" in rows[0]
        texts = {key: [str(row.get(self.name(key)) or "") for row in rows] for key in ("prompt", "completion", "span")}
        check_at_most(max(map(len, texts["completion"])), "text_characters", path, "characters in one text")
        records: list[dict[str, Any]] = []
        for start, stop in iterate_blocks(len(rows), _ROWS_AT_ONCE):
            try:
                batch = encode_prompts(
                    tokenizer,
                    texts["prompt"][start:stop],
                    texts["completion"][start:stop],
                    template=self.template,
                    form=self.form or PLAIN,
                    max_tokens=min(longest, self.max_tokens or _USUAL_MAXIMUM),
                    spans=texts["span"][start:stop] if has_spans else None,
                    is_encoder_decoder=is_apart,
                )
            except InputError as error:
                raise InputError(f"{path}, records {start + 1} to {stop}: {error}") from error
            records += _unpad(batch, is_apart=is_apart)
        for record, row in zip(records, rows, strict=True):
            record |= {key: row[self.name(key)] for key in _BESIDE if self.name(key) in row}
        return records

    def _check(self, rows: Sequence[Mapping[str, Any]], path: Path) -> Sequence[Mapping[str, Any]]:
        if not rows:
            raise FileFormatError(f"{path} must hold records; got none.")
        wanted = ["completion", *(key for key in ("prompt", "span", "strata") if self.columns.get(key))]
        if not self.columns.get("completion"):
            wanted.append("prompt")  # a column of completions that is named may stand alone
        for key in dict.fromkeys(wanted):
            column = self.name(key)
            blank = next((n for n, row in enumerate(rows, 1) if not isinstance(row.get(column), str)), None)
            if blank:
                found = f"none in record {blank}" if column in rows[0] else ", ".join(map(str, rows[0]))
                raise FileFormatError(
                    f"{path} must have a column of texts {column!r}, filled in every row; got {found:.200}. Name it as "
                    f"data.{key}."
                )
        return rows


def read_prompt_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table of texts, by column."""
    if path.is_dir() and is_dataset_folder(path):
        part, table = only_part(read_dataset(path), path)
        check_table(table, f"{path.name}/{part}")
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows
    if path.suffix.lower() not in ENDINGS or path.is_dir():
        raise FileFormatError(
            f"{path} must be a .csv, .jsonl or .parquet file of prompts and completions, or a Hugging Face dataset "
            f"saved on disk; got {'a folder' if path.is_dir() else path.suffix or 'no ending'!r}."
        )
    return read_parquet(path).to_pylist() if path.suffix.lower() == ".parquet" else read_rows(path)


def _unpad(batch: Mapping[str, Any], *, is_apart: bool) -> list[dict[str, Any]]:
    """One dict of tensors per record, without padding: records are padded again in batches of similar length."""
    from ruler.embeddings.inputs import IGNORED_TOKEN

    n_tokens = batch["attention_mask"].sum(dim=1).tolist()
    n_labels = (batch["labels"] != IGNORED_TOKEN).sum(dim=1).tolist() if is_apart else n_tokens
    records = []
    for row in range(len(n_tokens)):
        record = {key: batch[key][row, : n_tokens[row]] for key in ("input_ids", "attention_mask")}
        record |= {key: batch[key][row, : n_labels[row]] for key in ("labels", "span_mask") if key in batch}
        records.append(record)
    return records
