"""The same search on an NVIDIA GPU: the door is `accelerator.py`, as `search.py` is on the CPU."""
