"""Measurements of speed and precision, run from a checkout by `make bench`; not shipped with the package."""
