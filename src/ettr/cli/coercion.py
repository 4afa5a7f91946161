"""Values from the command line without loading pydantic, which costs more than a closed form.

Typer builds a pydantic adapter for every parameter of a command, the untyped ones included. Where a
value plainly is what the parameter takes, it is taken as it is; all else goes Typer's way, so that
what is accepted, and what is said of what is not, are Typer's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_INTEGER = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


class PlainValues:
    """Stands before Typer's own coercion of one parameter."""

    def __init__(self, annotation: Any, info: Any) -> None:
        self._annotation = annotation
        self._info = info

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the command gets it.

        Raises:
            click.BadParameter: as Typer does.
        """
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if type(value) is self._annotation and not isinstance(value, str):
            return value
        if isinstance(value, str) and not many:
            plain = self._plain(value)
            if plain is not None:
                return plain
        # Typer's own is made on demand
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _plain(self, text: str) -> str | int | float | Path | None:
        """The value where it is beyond doubt, else None."""
        if self._annotation is str:
            return text
        if self._annotation is int and _INTEGER.fullmatch(text):
            return self._within(int(text))
        if self._annotation is float and _NUMBER.fullmatch(text):
            return self._within(float(text))
        return None

    def _within(self, number: float) -> float | None:
        low, high = self._info.min, self._info.max
        return (
            number if (low is None or low <= number) and (high is None or number <= high) else None
        )


def take_plain_values(params: Iterable[Any]) -> None:
    """Put `PlainValues` before the coercion of those parameters that have Typer's lazy one."""
    for param in params:
        described = getattr(param, "type_descriptor", None)
        if described is not None and getattr(param, "_runtime_param", param) is None:
            info = described.parameter_info
            if info.parser is None:
                param._runtime_param = PlainValues(described.annotation, info)
