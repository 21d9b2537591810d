"""The grid: studies -> cells -> rows, resumable at any moment."""
