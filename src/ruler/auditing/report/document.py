"""Report <-> report.json, by the published schema (schema.json beside this file).

Numbers that could not be computed are the strings "NaN", "Infinity" and "-Infinity", since JSON has no such numbers.
After a change of the findings, write the schema anew: ``python -m ruler.auditing.report.document``.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema

from ruler.auditing.findings import Distributions, GuardFinding, MetricFinding, Pairing, Report, Verdict
from ruler.auditing.settings import AuditSettings
from ruler.core.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

VERSION: Literal[1] = 1
SCHEMA_PATH = Path(__file__).with_name("schema.json")
_NOT_NUMBERS = ["NaN", "Infinity", "-Infinity"]


class _Part(BaseModel):
    # the findings' own dataclasses take this over: unknown fields are refused all the way down
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class DistributionsPart(_Part):
    """Values a record, for plots."""

    oracle_similarity: dict[str, list[float]]
    nearest_similarity: dict[str, list[float]]
    rank_edges: list[float]
    rank_counts: dict[str, list[float]]


class GroupPart(_Part):
    """One group of forget records: an erasure request."""

    group: bool | int | float | str
    n_records: int
    oracle_similarity: float
    nearest_similarity: float
    shift: float
    n_flagged: int
    p_value: float
    q_value: float
    finding: str | None


class RecordsPart(_Part):
    """The file beside this one that holds a row a forget record."""

    file: Literal["records.parquet"] = "records.parquet"
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    n_records: int = Field(ge=0)
    columns: list[str]


class ReportDocument(_Part):
    """The whole of report.json."""

    format: Literal["ruler-report"] = "ruler-report"
    version: Literal[1] = VERSION
    verdict: Verdict
    reason: str
    metrics: dict[Literal["m1", "m2", "m3", "m4"], MetricFinding]
    groups: list[GroupPart] | None
    guards: list[GuardFinding]
    settings: AuditSettings
    provenance: dict[str, Any]
    distributions: DistributionsPart
    pairing: Pairing | None
    outputs: dict[str, dict[str, float]]
    records: RecordsPart


def write_document(report: Report, *, records_digest: str) -> str:
    """The text of report.json."""
    content = {
        "verdict": report.verdict,
        "reason": report.reason,
        "metrics": {name: asdict(metric) for name, metric in report.metrics.items()},
        "groups": None if report.groups is None else report.groups.to_dict(orient="records"),
        "guards": [asdict(guard) for guard in report.guards],
        "settings": asdict(report.settings),
        "provenance": report.provenance,
        "distributions": vars(report.distributions),
        "pairing": None if report.pairing is None else asdict(report.pairing),
        "outputs": report.outputs,
        "records": {
            "sha256": records_digest,
            "n_records": len(report.records),
            "columns": [str(name) for name in report.records.columns],
        },
    }
    return ReportDocument.model_validate(_plain(content)).model_dump_json(indent=2) + "\n"


def read_document(document: ReportDocument, records: "pd.DataFrame") -> Report:
    """The report that a checked document and its records describe."""
    return Report(
        verdict=document.verdict,
        reason=document.reason,
        metrics={str(name): metric for name, metric in document.metrics.items()},
        records=records,
        groups=None if document.groups is None else _frame_groups(document.groups),
        guards=document.guards,
        settings=document.settings,
        provenance=document.provenance,
        distributions=Distributions(
            oracle_similarity=_as_arrays(document.distributions.oracle_similarity),
            nearest_similarity=_as_arrays(document.distributions.nearest_similarity),
            rank_edges=np.asarray(document.distributions.rank_edges, dtype=np.float64),
            rank_counts=_as_arrays(document.distributions.rank_counts),
        ),
        pairing=document.pairing,
        outputs=document.outputs,
    )


def _frame_groups(rows: list[GroupPart]) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame({name: [getattr(row, name) for row in rows] for name in GroupPart.model_fields})


def _as_arrays(values: Mapping[str, list[float]]) -> dict[str, Any]:
    return {side: np.asarray(numbers, dtype=np.float64) for side, numbers in values.items()}


def _plain(value: Any) -> Any:
    """Mappings, arrays and NumPy scalars as JSON's own kinds; anything else becomes text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, int | float):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate is no JSON


class _SchemaWriter(GenerateJsonSchema):
    def float_schema(self, schema: Any) -> dict[str, Any]:
        return {"anyOf": [{"type": "number"}, {"enum": _NOT_NUMBERS}]}

    def encode_default(self, dft: Any) -> Any:
        return "NaN" if isinstance(dft, float) and dft != dft else super().encode_default(dft)


def describe_schema() -> dict[str, Any]:
    """The JSON schema of report.json (draft 2020-12).

    Example:
        >>> describe_schema()["properties"]["version"]["const"]
        1
    """
    schema = ReportDocument.model_json_schema(mode="serialization", schema_generator=_SchemaWriter)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:ruler:report:{VERSION}",
        "title": "RULER audit report",
        **{key: value for key, value in schema.items() if key != "title"},
    }


if __name__ == "__main__":
    write_atomically(SCHEMA_PATH, json.dumps(describe_schema(), indent=2, allow_nan=False) + "\n")
