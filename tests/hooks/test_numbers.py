import math

from ruler.hooks.numbers import list_numbers


def test_numbers_are_those_of_the_report_and_finite(report):
    numbers = list_numbers(report, "audit")
    assert numbers["audit/m2/effect"] == report.metrics["m2"].effect
    assert numbers["audit/n_flagged"] == 0
    assert numbers["audit/m4/p_value"] == report.metrics["m4"].p_value
    assert numbers["audit/damage/similarity"] == report.damage.similarity
    assert "audit/damage/skill" not in numbers  # NaN: nobody gave labels
    assert all(type(number) is float and math.isfinite(number) for number in numbers.values())


def test_only_an_erased_verdict_counts_as_erased(report, erased):
    assert (list_numbers(report)["ruler/is_erased"], list_numbers(erased)["ruler/is_erased"]) == (0.0, 1.0)


def test_what_remains_is_among_the_numbers(residual, report):
    numbers = list_numbers(residual)
    families = {"outputs/": residual.outputs.remaining, "layers/": residual.layers.remaining}
    for name, found in {"": residual.remaining, **families}.items():
        assert numbers[f"ruler/{name}remaining/value"] == found.value
        assert numbers[f"ruler/{name}remaining/low"] == found.low
        assert numbers[f"ruler/{name}remaining/high"] == found.high
    assert numbers["ruler/tangent/remaining/original"] == residual.metrics["tangent"].remaining["original"].value
    assert abs(numbers["ruler/outputs/remaining/value"]) < 0.1 < 0.4 < numbers["ruler/layers/remaining/value"]
    assert numbers["ruler/loss/remaining/members"] == residual.metrics["loss"].remaining["members"].value
    assert not any("remaining" in name for name in list_numbers(report))  # nothing tells how large a trace is
