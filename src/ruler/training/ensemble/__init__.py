"""Many models at once: the same-shaped models of a study trained together with stacked parameters."""

from ruler.training.ensemble.stacked_mlp import MLPShape, StackedMLP
from ruler.training.ensemble.train import EnsembleMember, train_ensemble

__all__ = ["EnsembleMember", "MLPShape", "StackedMLP", "train_ensemble"]
