import numpy as np
from tests.auditing.report.factory import NAN, make_report

from ruler.auditing.report.tables import show_table


def test_very_long_names_are_cut_only_where_they_would_burst_the_page():
    short = show_table(make_report(ids=["x" * 10_000] * 40).records, "record")
    assert not short.is_clipped
    assert len(short.first[0][0]) == 10_000
    long = show_table(make_report(n_forget=4000, ids=["x" * 10_000] * 4000).records, "record")
    assert long.is_clipped
    assert sum(map(len, long.data["values"]["id"])) < 10_000_000


def test_records_that_stand_out_come_first():
    table = show_table(make_report(n_forget=100).records, "record")
    q_values = [row[[column.key for column in table.columns].index("q_value")] for row in table.first]
    assert q_values == sorted(q_values)
    assert len(table.first) == 25


def test_empty_columns_are_left_out_and_unknown_ones_shown():
    report = make_report(has_oracle=False)
    report.records["site"] = "ward <3>"
    keys = [column.key for column in show_table(report.records, "record").columns]
    assert "oracle_similarity" not in keys
    assert keys[-1] == "site"


def test_columns_of_records_and_groups():
    report = make_report(n_groups=3)
    keys = [column.key for column in show_table(report.records, "record").columns]
    assert {"norm_ratio", "loss", "loss_gap"} <= set(keys)
    kinds = {column.key: column.kind for column in show_table(report.groups, "group").columns}
    assert (kinds["remaining"], kinds["at_most"], kinds["verdict"]) == ("percent", "percent", "verdict")
    assert "loss_gap" in kinds
    assert all(column.meaning for column in show_table(report.records, "record").columns)


def test_values_that_are_not_finite_are_dashes():
    report = make_report()
    report.records["shift"] = np.inf
    report.records.loc[0, "oracle_gap"] = NAN
    values = show_table(report.records, "record").data["values"]
    assert set(values["shift"]) == {None}
    assert values["oracle_gap"].count(None) == 1


def test_what_remains_is_shown_in_percent():
    report = make_report()
    report.records["remaining"] = -0.123
    table = show_table(report.records, "record")
    place = [column.key for column in table.columns].index("remaining")
    assert {row[place] for row in table.first} == {"\u221212%"}
