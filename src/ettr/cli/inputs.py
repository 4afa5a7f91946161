"""Inputs that an option needs to have any effect, declared with the option itself.

An option says so in its type, `Annotated[str | None, typer.Option(...), needs(Input.STORE)]`. A
command with a parameter of type `TypedOptions` says which inputs it was given, and what was typed
in vain is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import get_args

import typer

from ettr.errors import UsageError


class Input(StrEnum):
    """Something that a command may be given and that an option may need; worded for a message."""

    STORE = "a STORE"
    FILES = "log files"
    COUNTS = "--failures with --node-days"
    RATE = "a failure rate typed in"
    STATE = "--state-bytes"
    PLANNER_PAGE = "--html"
    REPORT_PAGE = "an HTML page (no --json)"
    REPAIR = "--repair"
    FLIGHT = "--flight"
    LAW = "--law"
    SIMULATION = "--law, --bursts, --spares or --detection"
    MODEL_OF_AGE = "--model weibull or --model lognormal"
    LARGE_JOBS = "large jobs alone (no --all-jobs)"
    LIST = "--list"
    PREVIOUS = "--previous"


@dataclass(frozen=True, slots=True)
class Needs:
    """An option changes nothing unless one of these inputs is given."""

    any_of: tuple[Input, ...]

    def met(self, given: Mapping[Input, bool]) -> bool:
        """Whether one is given, or the command takes none of them."""
        known = [given[one] for one in self.any_of if one in given]
        return any(known) or not known

    def words(self, given: Mapping[Input, bool]) -> str:
        """The inputs that the command could be given, for a sentence."""
        return " or ".join(one for one in self.any_of if one in given)


def needs(*any_of: Input) -> Needs:
    """Mark an option that changes nothing unless one of these inputs is given."""
    return Needs(any_of)


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """The options that stand on the command line, each with what it needs."""

    needs: Mapping[str, tuple[Needs, ...]]

    @classmethod
    def of(cls, context: typer.Context, declared: Mapping[str, tuple[Needs, ...]]) -> TypedOptions:
        """Those of `declared` that were typed, a value equal to the default included."""
        return cls(
            {
                max(option.opts, key=len): declared[option.name]
                for option in context.command.params
                if option.name in declared and _typed(context, option.name)
            }
        )

    def check(self, given: Mapping[Input, bool]) -> None:
        """Refuse options that can have no effect.

        Args:
            given: Each input that the command may be given, and whether it is.

        Raises:
            UsageError: names every such option and what it needs.
        """
        idle: dict[str, list[str]] = {}
        for flag, clauses in self.needs.items():
            for clause in clauses:
                if not clause.met(given):
                    idle.setdefault(clause.words(given), []).append(flag)
        if idle:
            lines = "".join(f"\n  {', '.join(flags)}: needs {what}" for what, flags in idle.items())
            raise UsageError(
                f"options that would change nothing:{lines}\nleave them out, or give what they need"
            )


def declared_needs(parameters: Iterable[inspect.Parameter]) -> dict[str, tuple[Needs, ...]]:
    """The parameters of a command whose options need an input, with what they need."""
    declared = {
        parameter.name: tuple(
            extra for extra in get_args(parameter.annotation)[1:] if isinstance(extra, Needs)
        )
        for parameter in parameters
    }
    return {name: clauses for name, clauses in declared.items() if clauses}


def _typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name in {"COMMANDLINE", "ENVIRONMENT"}
