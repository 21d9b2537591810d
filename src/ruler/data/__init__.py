"""A name or a file -> arrays, split and partitioned into what is forgotten and what is kept."""

from ruler.data.duplicates import Duplicates, find_duplicates
from ruler.data.partition import name_records, partition_classes, partition_groups, partition_rows
from ruler.data.sets import TABULAR_SETS, TabularSet
from ruler.data.sources import Location, locate
from ruler.data.split import TabularSplit, split
from ruler.data.tabular import TabularData, fetch_tabular, load_tabular

__all__ = [
    "TABULAR_SETS",
    "Duplicates",
    "Location",
    "TabularData",
    "TabularSet",
    "TabularSplit",
    "fetch_tabular",
    "find_duplicates",
    "load_tabular",
    "locate",
    "name_records",
    "partition_classes",
    "partition_groups",
    "partition_rows",
    "split",
]
