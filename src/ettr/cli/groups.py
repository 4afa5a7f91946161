"""Options that belong together, declared once and taken by a command as one parameter.

A command names a group (a frozen dataclass whose fields are options) as the type of a parameter;
`flattened` gives Typer a command with the group's fields in that place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Base of the groups; every field is an option with a default."""


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each group in its parameters replaced by the options of that group.

    Raises:
        TypeError: two parameters of one name, which the command line could not tell apart.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[OptionGroup], tuple[str, ...]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if isinstance(hint, type) and issubclass(hint, OptionGroup):
            members = _members(hint)
            groups[parameter.name] = (hint, tuple(member.name for member in members))
            parameters.extend(members)
        else:
            # by keyword, as defaults then may stand anywhere
            parameters.append(
                parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY)
            )
    names = [parameter.name for parameter in parameters]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeError(f"{command.__name__}: {', '.join(twice)} stands in two places")

    def flat(**given: Any) -> None:
        for name, (group, members) in groups.items():
            given[name] = group(**{member: given.pop(member) for member in members})
        command(**given)

    flat.__name__ = command.__name__
    flat.__doc__ = command.__doc__
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _members(group: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(group).parameters.values()
    ]
