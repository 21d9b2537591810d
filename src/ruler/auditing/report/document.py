"""Report <-> report.json, by the published schema (schema.json beside this file).

Numbers that could not be computed are the strings "NaN", "Infinity" and "-Infinity", since JSON has no such numbers.
After a change of the findings, write the schema anew: ``python -m ruler.auditing.report.document``.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator
from pydantic.json_schema import GenerateJsonSchema

from ruler.auditing.findings import (
    AttackFinding,
    Damage,
    Distributions,
    FamilyFinding,
    Given,
    GuardFinding,
    MetricFinding,
    Pairing,
    Plane,
    Privacy,
    Report,
    Verdict,
)
from ruler.auditing.report.display import make_encodable
from ruler.auditing.settings import AuditSettings
from ruler.core.files import write_atomically
from ruler.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

VERSION: Literal[4] = 4
SCHEMA_PATH = Path(__file__).with_name("schema.json")
_NOT_NUMBERS = ["NaN", "Infinity", "-Infinity"]
_ROUNDING = 1e-9
_PART = (0.0, 1.0)
_COUNT = (0.0, math.inf)
# least and largest value of a number, or of both ends of an interval, by class and field; NaN is always allowed
_BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "MetricFinding": {"p_value": _PART, "reference_error": _COUNT},
    "Part": dict.fromkeys(("effect", "interval", "p_value"), _PART),
    "MetricControl": {
        **dict.fromkeys(("n_forget", "n_control"), _COUNT),
        **dict.fromkeys(("original_effect", "original_p_value"), _PART),
    },
    "Given": dict.fromkeys(("oracle", "reference"), _COUNT),
    "Remaining": dict.fromkeys(("visibility", "resolution"), _COUNT),
    "LayerFinding": dict.fromkeys(("effect", "effect_interval", "p_value"), _PART),
    "AttackFinding": {"n_flagged": _COUNT},
    "Damage": {"similarity": _PART, "least_similarity": _PART},
    "Privacy": {
        "epsilon": _COUNT,
        **dict.fromkeys(("confidence", "true_positive_rate", "true_positive_interval"), _PART),
    },
    "PlanePart": {"shares": _PART},
    "GroupPart": {**dict.fromkeys(("n_records", "n_flagged"), _COUNT), "p_value": _PART, "q_value": _PART},
}


class _Part(BaseModel):
    # the findings' own dataclasses take this over: unknown fields are refused all the way down
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class PlanePart(_Part):
    """Records at one layer, in two dimensions."""

    layer: str
    points: dict[str, list[tuple[FiniteFloat, FiniteFloat]]]
    shares: tuple[float, float]


class DistributionsPart(_Part):
    """Values per record, for plots."""

    scores: dict[str, dict[str, list[float]]]
    roc: dict[str, tuple[list[float], list[float]]]
    rank_edges: list[float]
    rank_counts: dict[str, list[float]]
    plane: PlanePart | None = None


class GroupPart(_Part):
    """One group of forget records: an erasure request."""

    group: bool | int | float | str
    n_records: int
    remaining: float
    low: float
    high: float
    at_least: float
    at_most: float
    verdict: Verdict
    oracle_similarity: float
    nearest_similarity: float
    shift: float
    loss_gap: float
    n_flagged: int
    p_value: float
    q_value: float
    finding: str | None


class RecordsPart(_Part):
    """The file beside this one that holds one row per forget record."""

    file: Literal["records.parquet"] = "records.parquet"
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    n_records: int = Field(ge=0)
    columns: list[str]


class ReportDocument(_Part):
    """The whole of report.json."""

    format: Literal["ruler-report"] = "ruler-report"
    version: Literal[4] = VERSION
    verdict: Verdict
    reason: str
    outputs: FamilyFinding
    layers: FamilyFinding
    given: Given
    needs: list[str]
    metrics: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,39}$")], MetricFinding]
    damage: Damage | None
    privacy: Privacy | None
    groups: list[GroupPart] | None
    guards: list[GuardFinding]
    settings: AuditSettings
    provenance: dict[str, Any]
    distributions: DistributionsPart
    pairing: Pairing | None
    answers: dict[str, dict[str, float]]
    declared: dict[Annotated[str, Field(pattern="^[a-z][a-z_]{0,39}$")], Annotated[str, Field(max_length=2000)]]
    attacks: dict[Annotated[str, Field(pattern="^[a-z][a-z0-9_]{0,39}$")], AttackFinding] = {}
    records: RecordsPart

    @model_validator(mode="after")
    def _check_bounds(self) -> "ReportDocument":
        found = [part for one in self.attacks.values() for part in (*one.metrics.values(), one)]
        parts = (self.outputs, self.layers, self.given, self.damage, self.privacy, self.distributions.plane)
        for part in (*self.metrics.values(), *parts, *(self.groups or ()), *found):
            _check_part(part)
        if any(len(false) != len(true) for false, true in self.distributions.roc.values()):
            raise ValueError("roc must hold as many true as false positive rates")
        return self


def _check_part(part: Any) -> None:
    """Refuse impossible numbers in a finding and in the findings that it holds."""
    bounds = _BOUNDS.get(type(part).__name__, {})
    for name, value in vars(part).items() if part is not None else ():
        low, high = bounds.get(name, (-math.inf, math.inf))
        entries = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        for one in entries:
            if is_dataclass(one):
                _check_part(one)
            elif isinstance(one, int | float) and (one < low - _ROUNDING or one > high + _ROUNDING):
                raise ValueError(f"{name} must lie between {low:g} and {high:g}; got {value}")


def write_document(report: Report, *, records_digest: str) -> str:
    """The text of report.json."""
    content = {name: getattr(report, name) for name in ReportDocument.model_fields if name in vars(report)}
    content["groups"] = None if report.groups is None else report.groups.to_dict(orient="records")
    content["records"] = {
        "sha256": records_digest,
        "n_records": len(report.records),
        "columns": list(map(str, report.records.columns)),
    }
    return ReportDocument.model_validate(_plain(content)).model_dump_json(indent=2) + "\n"


def read_document(document: ReportDocument, records: "pd.DataFrame") -> Report:
    """The report that a checked document and its records describe."""
    import pandas as pd

    content = {name: value for name, value in vars(document).items() if name in Report.__dataclass_fields__}
    drawn = document.distributions
    content["distributions"] = Distributions(
        scores={name: _as_arrays(sides) for name, sides in drawn.scores.items()},
        roc={name: (np.asarray(rates[0]), np.asarray(rates[1])) for name, rates in drawn.roc.items()},
        rank_edges=np.asarray(drawn.rank_edges, np.float64),
        rank_counts=_as_arrays(drawn.rank_counts),
        plane=None if drawn.plane is None else _read_plane(drawn.plane),
    )
    if document.groups is not None:
        content["groups"] = pd.DataFrame(
            {name: [getattr(row, name) for row in document.groups] for name in GroupPart.model_fields}
        )
    return Report(**(content | {"records": records}))


def _read_plane(plane: PlanePart) -> Plane:
    points = {side: np.asarray(places, np.float64).reshape(-1, 2) for side, places in plane.points.items()}
    return Plane(plane.layer, points, plane.shares)


def _as_arrays(values: Mapping[str, list[float]]) -> dict[str, FloatArray]:
    return {side: np.asarray(numbers, np.float64) for side, numbers in values.items()}


def _plain(value: Any) -> Any:
    """Findings, mappings, arrays and NumPy scalars as JSON's own types; anything else becomes text."""
    if is_dataclass(value):
        return _plain(vars(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist() if value.dtype.kind in "biuf" else _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, int | float) else make_encodable(value)


class _SchemaWriter(GenerateJsonSchema):
    def float_schema(self, schema: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "number"}, {"enum": _NOT_NUMBERS}]}

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, tuple):
            return [self.encode_default(entry) for entry in dft]
        return "NaN" if isinstance(dft, float) and dft != dft else super().encode_default(dft)


def describe_schema() -> dict[str, Any]:
    """The JSON schema of report.json (draft 2020-12).

    Example:
        >>> describe_schema()["properties"]["version"]["const"]
        4
    """
    schema = ReportDocument.model_json_schema(mode="serialization", schema_generator=_SchemaWriter)
    for part, bounds in _BOUNDS.items():
        for name, (low, high) in bounds.items():
            _bound_numbers(schema["$defs"][part]["properties"][name], low, high)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ruler:report:{VERSION}",
        "title": "RULER audit report",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _bound_numbers(schema: Any, low: float, high: float) -> None:
    """Write the bounds beside every number in the schema of a field."""
    if isinstance(schema, list):
        for entry in schema:
            _bound_numbers(entry, low, high)
    elif isinstance(schema, dict):
        if schema.get("type") in ("number", "integer"):
            schema["minimum"] = int(low) if low == int(low) else low
            if math.isfinite(high):
                schema["maximum"] = int(high) if high == int(high) else high
        if schema.get("enum") == _NOT_NUMBERS:
            schema["enum"] = ["NaN"] if math.isfinite(high) else ["NaN", "Infinity"]
        for key in ("anyOf", "prefixItems"):
            _bound_numbers(schema.get(key), low, high)


if __name__ == "__main__":
    write_atomically(SCHEMA_PATH, json.dumps(describe_schema(), indent=2, allow_nan=False) + "\n")
