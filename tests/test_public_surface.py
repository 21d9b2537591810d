"""The names that users rely on, and what loading them costs."""

import pytest

import ruler


def test_public_names_are_pinned():
    assert ruler.__all__ == [
        "AuditSettings",
        "Comparison",
        "Embeddings",
        "Neighbors",
        "Report",
        "RulerError",
        "all_metrics",
        "audit",
        "audit_models",
        "compare",
        "compare_reports",
        "cosine_similarity",
        "embed",
        "find_neighbors",
        "m1",
        "m2",
        "m3",
        "m4",
        "unlearn",
    ]
    assert all(callable(getattr(ruler, name)) for name in ruler.__all__)


def test_import_is_light(run_python):
    heavy = run_python(
        "import sys, ruler; ruler.m4; ruler.embed; "
        "print([m for m in ('torch', 'pandas', 'sklearn', 'transformers', 'matplotlib', 'rich') if m in sys.modules])"
    )
    assert heavy.strip() == "[]"


def test_a_missing_package_is_named_with_its_install_line(run_python):
    printed = run_python(
        "import sys; sys.modules['torch'] = None\n"
        "import ruler\n"
        "try: ruler.embed(None, None)\n"
        "except ImportError as error: print(error)"
    )
    assert 'pip install "ruler-audit[torch]"' in printed


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AttributeError, match="m1, m2, m3, m4"):
        ruler.m5  # noqa: B018
