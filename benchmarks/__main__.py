"""`python -m benchmarks [NAME] [OPTION]...`: run one of the benchmarks, `peers` if none is named."""

import importlib
import sys

from ruler.core.errors import RulerError
from ruler.core.registry import Registry

_NAMES = (
    *("peers", "comparison", "cuda", "document", "faithfulness", "faithfulness_table", "meta"),
    *("frontier", "frontier_tofu", "frontier_tofu_table", "language", "precision", "scaling", "shards", "studies"),
    *("audits", "ensemble", "protocol", "embedding", "tofu_table", "engines", "primary"),
)
BENCHMARKS = Registry("benchmark", {**{name: name for name in _NAMES}, "kinds": "search"})
"""Name -> the module that holds it."""


def main() -> None:
    """Let the named benchmark read the other arguments."""
    try:
        is_named = len(sys.argv) > 1 and not sys.argv[1].startswith("-")
        name = BENCHMARKS[sys.argv.pop(1)] if is_named else "peers"
        importlib.import_module(f"benchmarks.{name}").main()
    except RulerError as error:
        sys.exit(f"benchmarks: {error}")


if __name__ == "__main__":
    main()
