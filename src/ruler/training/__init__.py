"""Model and data -> trained model."""

from ruler.training.batches import Batches
from ruler.training.checkpoints import CheckpointStore, Recipe, describe_training
from ruler.training.classifier import predict, train_classifier, train_tabular
from ruler.training.loop import LOOP_VERSION, optimize
from ruler.training.objectives import cross_entropy
from ruler.training.published import export_published, import_published
from ruler.training.sentences import MaskedSentences
from ruler.training.settings import TrainingSettings

__all__ = [
    "LOOP_VERSION",
    "Batches",
    "CheckpointStore",
    "MaskedSentences",
    "Recipe",
    "TrainingSettings",
    "cross_entropy",
    "describe_training",
    "export_published",
    "import_published",
    "optimize",
    "predict",
    "train_classifier",
    "train_tabular",
]
