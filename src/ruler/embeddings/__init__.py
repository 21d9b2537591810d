"""Any model and data, or files, become Embeddings: one vector per record, with its id."""

from ruler.embeddings.extract import embed, read_model
from ruler.embeddings.files import load_embeddings, save_embeddings
from ruler.embeddings.sides import load_model_folder

__all__ = ["embed", "load_embeddings", "load_model_folder", "read_model", "save_embeddings"]
