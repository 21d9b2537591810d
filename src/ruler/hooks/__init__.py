"""Audits where people work: callbacks of trainers, trackers, model cards, tests and metrics; one package per file."""
