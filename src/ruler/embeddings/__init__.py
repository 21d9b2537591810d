"""Any model and data, or a file, become Embeddings: one vector per record, with its id."""

from ruler.embeddings.extract import embed, read_model
from ruler.embeddings.files import load_embeddings, save_embeddings
from ruler.embeddings.records import check_same_ids

__all__ = ["check_same_ids", "embed", "load_embeddings", "read_model", "save_embeddings"]
