"""The same search on an NVIDIA GPU: `engine.py`, as `cpu.py` for the processor."""
