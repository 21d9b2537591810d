"""Report to print: a summary for terminals and notebooks; report.json, report.html and records.parquet in a folder."""

from ruler.auditing.report.files import describe_report, load_report, save_report
from ruler.auditing.report.summary import render_notebook, summarise

__all__ = ["describe_report", "load_report", "render_notebook", "save_report", "summarise"]
