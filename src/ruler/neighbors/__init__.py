"""Exact nearest neighbours by cosine similarity: one door, engines behind it."""

from ruler.neighbors.search import find_neighbors

__all__ = ["find_neighbors"]
