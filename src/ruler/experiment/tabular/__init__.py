"""The engines of the tabular studies, and what they measure of a model."""
