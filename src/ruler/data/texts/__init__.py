"""Texts: documents, cut into sentences."""
