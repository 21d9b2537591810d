"""Help that shows no type beside options that take no value."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _PlainFlags:
    """For a command: its switches have no ``<bool>`` beside them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, the switches with an empty type."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class PlainCommand(_PlainFlags, TyperCommand):
    """A verb."""


class PlainGroup(_PlainFlags, TyperGroup):
    """A verb with verbs of its own."""
