"""Exact nearest neighbours by cosine similarity: one door, engines behind it."""

from ruler.neighbors.devices import DevicesEngine
from ruler.neighbors.search import ENGINES, Searcher, find_neighbors

ENGINES.register("devices", DevicesEngine())  # here, since it asks the door itself

__all__ = ["Searcher", "find_neighbors"]
