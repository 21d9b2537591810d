"""Results to print: the paper's tables and figures, beside its published numbers."""
