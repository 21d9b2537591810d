"""In a file of its own, so that the process that is measured loads nothing else."""

import numpy as np


def prepare_allocation():
    return lambda: np.ones(25_000_000).sum()  # 200 MB
