"""Covertype as the UCI repository publishes it, from the copy that scikit-learn also uses."""

from typing import Any

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.data.homes.download import RemoteFile, downloaded
from ruler.data.tables.sets import TabularSet

_FILE = RemoteFile(
    "https://ndownloader.figshare.com/files/5976039",
    "sha256",
    "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
    20_000_000,
)
# fmt: off
_MEASURES = (
    "Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
)
# fmt: on
COVERTYPE_COLUMNS = (
    *_MEASURES,
    *(f"Wilderness_Area{area}" for area in range(1, 5)),
    *(f"Soil_Type{soil}" for soil in range(1, 41)),
    "Cover_Type",
)


def download_covertype(entry: TabularSet, *, progress: bool = False) -> Any:
    """The whole table, rows in the published order.

    Returns:
        DataFrame with named columns, the cover type last.

    Raises:
        DownloadError: The file cannot be fetched or has another checksum.
        FileFormatError: The file holds something else.
    """
    pandas = load_optional("pandas", "reading a table")
    file = f"tabular/{entry.key}.csv.gz"
    with downloaded(_FILE, title=entry.title, file=file, progress=progress) as path:
        try:
            table = pandas.read_csv(path, header=None, compression="gzip")
        except (OSError, EOFError, ValueError) as error:
            raise FileFormatError(f"file of {entry.title} must be a gzipped CSV; got another ({error}).") from error
    if table.shape[1] != len(COVERTYPE_COLUMNS):
        raise FileFormatError(f"{entry.title} must have {len(COVERTYPE_COLUMNS)} columns; got {table.shape[1]}.")
    table.columns = list(COVERTYPE_COLUMNS)
    return table
