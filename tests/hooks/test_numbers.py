import math

from ruler.hooks.numbers import list_numbers


def test_numbers_are_those_of_the_report_and_finite(report):
    numbers = list_numbers(report, "audit")
    assert numbers["audit/m2/effect"] == report.metrics["m2"].effect
    assert numbers["audit/m4/p_value"] == report.metrics["m4"].p_value
    assert numbers["audit/damage/similarity"] == report.damage.similarity
    assert "audit/damage/skill" not in numbers  # NaN: nobody gave labels
    assert all(type(number) is float and math.isfinite(number) for number in numbers.values())


def test_only_an_erased_verdict_counts_as_erased(report, erased):
    assert (list_numbers(report)["ruler/is_erased"], list_numbers(erased)["ruler/is_erased"]) == (0.0, 1.0)
