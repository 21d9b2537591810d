"""A name or a file -> arrays, split and partitioned into what is forgotten and what is kept."""

from ruler.data.images.data import ImageData, ImageSplit
from ruler.data.images.faces import check_gender, fetch_faces, load_faces
from ruler.data.images.images import fetch_images, load_images
from ruler.data.images.sets import FACE_SETS, IMAGE_SETS, FaceSet, ImageSet
from ruler.data.partition import choose_groups, name_records, partition_classes, partition_groups, partition_rows
from ruler.data.published import PUBLISHED_SETS, describe_set, fetch_set
from ruler.data.sources import Location, locate
from ruler.data.tables.duplicates import Duplicates, find_duplicates
from ruler.data.tables.large_sets import LARGE_SETS
from ruler.data.tables.sets import TABULAR_SETS, TabularSet
from ruler.data.tables.split import TabularSplit, sample_rows, split
from ruler.data.tables.tabular import TabularData, fetch_tabular, load_tabular
from ruler.data.texts.sentences import split_sentences
from ruler.data.texts.sets import TEXT_SETS, TextSet
from ruler.data.texts.texts import TextData, fetch_texts, load_texts

__all__ = [
    "FACE_SETS",
    "IMAGE_SETS",
    "LARGE_SETS",
    "PUBLISHED_SETS",
    "TABULAR_SETS",
    "TEXT_SETS",
    "Duplicates",
    "FaceSet",
    "ImageData",
    "ImageSet",
    "ImageSplit",
    "Location",
    "TabularData",
    "TabularSet",
    "TabularSplit",
    "TextData",
    "TextSet",
    "check_gender",
    "choose_groups",
    "describe_set",
    "fetch_faces",
    "fetch_images",
    "fetch_set",
    "fetch_tabular",
    "fetch_texts",
    "find_duplicates",
    "load_faces",
    "load_images",
    "load_tabular",
    "load_texts",
    "locate",
    "name_records",
    "partition_classes",
    "partition_groups",
    "partition_rows",
    "sample_rows",
    "split",
    "split_sentences",
]
