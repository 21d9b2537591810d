"""What every room may use: values that travel, errors, argument checks, exact row arithmetic, readers of files."""

__version__ = "0.1.0"
