"""A name or a file -> arrays, split and partitioned into what is forgotten and what is kept.

A dataset of your own becomes known by its name through `register_dataset`, or from your own package by an entry point
of the group ``ruler.datasets`` that names a `TabularSet`, `ImageSet`, `FaceSet`, `TextSet` or `PromptSet`.
"""

from ruler.data.catalog import DATASETS, list_datasets, register_dataset
from ruler.data.datasets import Dataset, FaceSet, ImageSet, PromptSet, RemoteFile, TabularSet, TextSet
from ruler.data.doors import describe_dataset, fetch_dataset, load_dataset
from ruler.data.faces import check_gender, load_faces
from ruler.data.images import load_images
from ruler.data.partition import find_duplicates, partition_classes, partition_groups, partition_rows
from ruler.data.prompts import PromptSplit, load_prompts, split_prompts
from ruler.data.sources import Location, locate
from ruler.data.split import TabularSplit, sample_rows, split
from ruler.data.tables import load_tabular
from ruler.data.texts import load_texts, split_sentences
from ruler.data.types import ImageData, ImageSplit, Prompts, TabularData, TextData

__all__ = [
    "DATASETS",
    "Dataset",
    "FaceSet",
    "ImageData",
    "ImageSet",
    "ImageSplit",
    "Location",
    "PromptSet",
    "PromptSplit",
    "Prompts",
    "RemoteFile",
    "TabularData",
    "TabularSet",
    "TabularSplit",
    "TextData",
    "TextSet",
    "check_gender",
    "describe_dataset",
    "fetch_dataset",
    "find_duplicates",
    "list_datasets",
    "load_dataset",
    "load_faces",
    "load_images",
    "load_prompts",
    "load_tabular",
    "load_texts",
    "locate",
    "partition_classes",
    "partition_groups",
    "partition_rows",
    "register_dataset",
    "sample_rows",
    "split",
    "split_prompts",
    "split_sentences",
]
