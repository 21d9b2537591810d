"""Who does the work of a command: processes of this machine, or a Ray cluster."""

from ruler.core.registry import Registry

EXECUTORS = Registry("executor", {"local": "processes", "ray": "cluster"})
