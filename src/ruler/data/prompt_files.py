"""Files of published prompts -> `Prompts`: TOFU and LUME in the form in which their authors publish them."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.errors import FileFormatError
from ruler.core.readers.documents import read_json_list
from ruler.core.readers.safety import pack_texts
from ruler.core.readers.tables import read_json_lines
from ruler.data.types import Prompts

_PER_AUTHOR = 20
_TOFU_SHARES = {"forget10": 20, "forget05": 10, "forget01": 2}  # authors, counted from the end
_LUME_ID = re.compile(r'"?(.+?)"?((?:sc|qa)\d+)')  # document or person, then its sentence or question


def read_tofu(path: Path) -> Prompts:
    """TOFU (Maini et al., 2024): 200 fictitious authors with 20 questions each, from ``full.json``.

    Beside it ``forget10_perturbed.json`` and ``retain_perturbed.json`` have paraphrased and wrong answers of the last
    and the first 400 rows; ``forget10_entities.json`` marks the words that decide in 367 answers of the last 400.
    """
    rows = read_json_lines(path)
    paraphrases = [""] * len(rows)
    perturbations: list[tuple[str, ...]] = [()] * len(rows)
    spans: list[tuple[int, int] | None] = [None] * len(rows)
    n_forget = _TOFU_SHARES["forget10"] * _PER_AUTHOR
    for name, first in (("retain_perturbed.json", 0), ("forget10_perturbed.json", len(rows) - n_forget)):
        beside = path.parent / name
        for place, extra in enumerate(read_json_lines(beside), first):
            _check_alike(extra, rows[place] if 0 <= place < len(rows) else {}, beside)
            paraphrases[place] = _read_text(extra, "paraphrased_answer", beside)
            perturbations[place] = _read_texts(extra, "perturbed_answer", beside)
    marked = path.parent / "forget10_entities.json"
    for mark in read_json_list(marked):
        place = len(rows) - n_forget + int(mark.get("idx", n_forget))
        _check_alike(mark, rows[place] if 0 <= place < len(rows) else {}, marked)
        entity, answer = _read_text(mark, "entity", marked), _read_text(mark, "answer", marked)
        start = answer.find(entity)
        if start < 0 or answer.count(entity) > 1:
            raise FileFormatError(f"{marked} must mark words that stand once in the answer; got {entity!r:.80}.")
        spans[place] = start, start + len(entity)
    authors = np.arange(len(rows)) // _PER_AUTHOR
    names = [f"author {author:03d}" for author in range(-(-len(rows) // _PER_AUTHOR))]
    return Prompts(
        name="tofu",
        prompts=tuple(_read_text(row, "question", path) for row in rows),
        completions=tuple(_read_text(row, "answer", path) for row in rows),
        ids=np.array([f"{row // _PER_AUTHOR:03d}/{row % _PER_AUTHOR:02d}" for row in range(len(rows))]),
        groups=np.array(names)[authors],
        paraphrases=tuple(paraphrases),
        perturbations=tuple(perturbations),
        spans=tuple(spans),
        forget_sets={key: tuple(names[-n_authors:]) for key, n_authors in _TOFU_SHARES.items()},
    )


def read_questions(path: Path) -> Prompts:
    """Questions with the right and some wrong answers, each a group of its own: TOFU's checks of general knowledge."""
    rows = read_json_lines(path)
    numbers = np.array([f"{row:03d}" for row in range(len(rows))])
    return Prompts(
        name=path.name,
        prompts=tuple(_read_text(row, "question", path) for row in rows),
        completions=tuple(_read_text(row, "answer", path) for row in rows),
        ids=numbers,
        groups=numbers,
        perturbations=tuple(_read_texts(row, "perturbed_answer", path) for row in rows),
    )


def read_lume(path: Path) -> Prompts:
    """LUME (SemEval 2025 task 4): made-up stories, made-up people and short biographies, to continue and ask about.

    ``forget.jsonl.gz``, and ``retain.jsonl.gz`` beside it. The id before its last part names the document or person;
    the task is the stratum.
    """
    rows: list[dict[str, Any]] = []
    n_forget = 0
    for side in ("forget", "retain"):
        rows += read_json_lines(path.with_name(f"{side}.jsonl.gz"))
        n_forget = n_forget or len(rows)
    ids = [_LUME_ID.fullmatch(_read_text(row, "id", path)) for row in rows]
    if not all(ids):
        raise FileFormatError(f"{path} must have ids that end in sc or qa and a number; got another.")
    groups = [found[1] for found in ids if found]
    return Prompts(
        name="lume",
        prompts=tuple(_read_text(row, "input", path) for row in rows),
        completions=tuple(_read_text(row, "output", path) for row in rows),
        ids=pack_texts([f"{found[1]}/{found[2]}" for found in ids if found], "ids"),
        groups=pack_texts(groups, "groups"),
        strata=pack_texts([_read_text(row, "task", path) for row in rows], "strata"),
        forget_sets={"forget": tuple(dict.fromkeys(groups[:n_forget]))},
    )


def _check_alike(extra: dict[str, Any], row: dict[str, Any], path: Path) -> None:
    if any(extra.get(name) != row.get(name) for name in ("question", "answer")):
        raise FileFormatError(
            f"{path} must have the rows of full.json in their order; got {extra.get('question')!r:.80} where "
            f"{row.get('question')!r:.80} stands. Take both from one version."
        )


def _read_text(row: dict[str, Any], name: str, path: Path) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise FileFormatError(f"{path} must have a text {name!r} in every record; got {value!r:.80}.")
    return value


def _read_texts(row: dict[str, Any], name: str, path: Path) -> tuple[str, ...]:
    values = row.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise FileFormatError(f"{path} must have a list of texts {name!r} in every record; got {values!r:.80}.")
    return tuple(values)
