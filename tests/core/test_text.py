"""Nothing that others wrote controls a terminal."""

import json
import unicodedata

import pytest

from ruler.core.errors import InputError, MissingPackageError, RulerError
from ruler.core.text import markdown_table, show_json, show_text

HOSTILE = ["\x1b[31mred", "\x9b31m", "\x07", "\r", "\x08", "a\u202eb", "\u200b", "\x7f", "\udcff", "\U000e0041"]


def is_safe(text):
    return all(unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or one in "\n\t" for one in text)


@pytest.mark.parametrize("text", HOSTILE)
def test_control_characters_are_shown_as_escapes(text):
    assert not is_safe(text)
    assert is_safe(show_text(text))
    assert is_safe(show_json({text: [text]}))
    assert json.loads(show_json({text: [text]})) == {text: [text]}
    for error in (RulerError(text), InputError(text), MissingPackageError(text)):
        assert str(error) == show_text(text)


@pytest.mark.parametrize("text", ["Zürich", "李雷", "👩‍🔬", "a\tb\nc", "नमस्ते"])
def test_text_of_all_languages_stays(text):
    assert show_text(text) == text
    assert json.loads(show_json(text)) == text


def test_rows_may_be_any_iterables_and_columns_aligned():
    lines = markdown_table(("name", "n"), (map(str, row) for row in [("x", 1), ("y", 2)]), marks=(":--", "--:"))
    assert lines == ["| name | n |", "| :-- | --: |", "| x | 1 |", "| y | 2 |"]


def test_a_table_without_rows_is_its_head():
    assert markdown_table(["a"], []) == ["| a |", "| --- |"]
