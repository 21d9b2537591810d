"""Exact nearest neighbours by cosine similarity: one door, engines behind it."""

from ruler.neighbors.search import Searcher, find_neighbors

__all__ = ["Searcher", "find_neighbors"]
