"""Architectures of the paper's experiments, one a file."""

from ruler.models.tabular_mlp import TabularMLP

__all__ = ["TabularMLP"]
