"""Report to print: a summary for the terminal, and a folder with report.json, report.html and records.parquet."""

from ruler.auditing.report.files import load_report, save_report
from ruler.auditing.report.summary import summarise

__all__ = ["load_report", "save_report", "summarise"]
