"""Exact nearest neighbours by cosine similarity: one door, engines behind it."""

from ruler.neighbors.search import find_neighbors, searching_on

__all__ = ["find_neighbors", "searching_on"]
