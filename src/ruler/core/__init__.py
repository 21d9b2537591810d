"""What every room may use: values that travel, errors, argument checks, exact row arithmetic, readers of files."""

try:  # written when the package is built or installed, from the git tag
    from ruler.core._version import __version__ as __version__  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # a checkout that was never installed
    __version__ = "0.1.0.dev0"
