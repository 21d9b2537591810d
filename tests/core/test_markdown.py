from ruler.core.markdown import markdown_table


def test_rows_may_be_any_iterables_and_columns_aligned():
    lines = markdown_table(("name", "n"), (map(str, row) for row in [("x", 1), ("y", 2)]), marks=(":--", "--:"))
    assert lines == ["| name | n |", "| :-- | --: |", "| x | 1 |", "| y | 2 |"]


def test_a_table_without_rows_is_its_head():
    assert markdown_table(["a"], []) == ["| a |", "| --- |"]
