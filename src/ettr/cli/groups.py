"""Options that belong together, declared once and taken by a command as one parameter.

A command names a group (a frozen dataclass whose fields are options) as the type of a parameter;
`flattened` gives Typer a command with the group's fields in that place.
"""

from __future__ import annotations

import difflib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo

from ettr.cli.quantities import check_value
from ettr.errors import UsageError
from ettr.metrics.objectives import TABLE

_CONTEXT = "typer_context"


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Base of the groups; every field is an option with a default.

    Attributes:
        site_file: Options that a site file gave, as typed; the first word is the file's name.
    """

    site_file: tuple[str, ...] = field(default=(), kw_only=True)

    def around(self) -> AbstractContextManager[None]:
        """What a command with these options runs in."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Only:
    """Of a group, the options that a command offers; the others keep their defaults.

    Written as `Annotated[Group, Only("one", "two")]`.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each group in its parameters replaced by the options of that group.

    A parameter of type `TypedOptions` is filled in here.

    Raises:
        TypeError: two parameters of one name, which the command line could not distinguish.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[OptionGroup], tuple[str, ...]]] = {}
    typed: str | None = None
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        group, names = _group(hint)
        if group is not None:
            members = [one for one in _members(group) if names is None or one.name in names]
            groups[parameter.name] = (group, tuple(member.name for member in members))
            parameters.extend(members)
        elif hint is TypedOptions:
            typed = parameter.name
        else:
            parameters.append(_keyword(parameter.name, hint, parameter.default))
    asks = next((name for name, hint in hints.items() if hint is typer.Context), None)
    if asks is None and (typed is not None or groups):  # typer fills one of them
        parameters.append(_keyword(_CONTEXT, typer.Context))
    _check_names(command, parameters)
    needs = declared_needs(parameters)
    flags = {parameter.name: flag_of(parameter) for parameter in parameters}

    def flat(**given: Any) -> None:
        for name, value in given.items():
            if flags[name] is not None:
                check_value(flags[name] or name, value)
        context = given.pop(_CONTEXT, None) if asks is None else given[asks]
        if typed is not None:
            given[typed] = TypedOptions.of(context, needs)
        named = _of_site_file(context) if context is not None else ()
        for name, (group, members) in groups.items():
            own = {member: given.pop(member) for member in members}
            given[name] = group(**own, site_file=named)
        with ExitStack() as stack:
            for name in groups:
                stack.enter_context(given[name].around())
            command(**given)

    flat.__name__ = command.__name__
    flat.__doc__ = command.__doc__
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _group(hint: Any) -> tuple[type[OptionGroup] | None, tuple[str, ...] | None]:
    """The group that a parameter's type is, and the names of its options if not all are offered."""
    only = None
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        only = next((extra.names for extra in extras if isinstance(extra, Only)), None)
    is_group = isinstance(hint, type) and issubclass(hint, OptionGroup)
    return (hint, only) if is_group else (None, None)


def _members(group: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        _keyword(parameter.name, hints[parameter.name], parameter.default)
        for parameter in inspect.signature(group).parameters.values()
        if parameter.name != "site_file"
    ]


def _keyword(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """A parameter that is passed by keyword, so that those with defaults may stand anywhere."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def flag_of(parameter: inspect.Parameter) -> str | None:
    """The option as it is typed; None for an argument, whose text may be any file's name."""
    described = [one for one in get_args(parameter.annotation) if isinstance(one, OptionInfo)]
    declared = parameter.default if isinstance(parameter.default, OptionInfo) else None
    info = described[0] if described else declared
    if info is None:
        return None
    # within Annotated the first name stands where a default would
    names = [one for one in (info.default, *(info.param_decls or ())) if isinstance(one, str)]
    typed = [one for one in names if one.startswith("--")]
    return typed[0] if typed else f"--{parameter.name.replace('_', '-')}"


def _check_names(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> None:
    names = [parameter.name for parameter in parameters]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeError(f"{command.__name__}: {', '.join(twice)} is registered twice")


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
    TEXT = "text (no --json or --csv)"
    CSV = "--csv"


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


def _of_site_file(context: typer.Context) -> tuple[str, ...]:
    """The file's name, and each option that it gave."""
    given = (
        f"{max(option.opts, key=len)} {context.params[option.name]}"
        for option in context.command.params
        if option.name in context.params and _source(context, option.name) == "DEFAULT_MAP"
    )
    named = tuple(given)
    return (str(context.obj), *named) if named else ()


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    return "" if source is None else source.name


def _typed(context: typer.Context, name: str) -> bool:
    return _source(context, name) in {"COMMANDLINE", "ENVIRONMENT"}


# -- which options the first help of a command leaves to `--help-all` ------------------------------


HELP_ALL = "help_all"
ALL_SHOWN = "ettr.all_options"
"""Key in the context of a command whose help shall show all options."""
_EXPERT = (
    "--taxonomy --believe --window --burst-gap --sticky-gap --log-tolerance --confidence "
    "--above-gpus --fleet-nodes --preemption-window --preemption-tolerance --run-id "
    "--false-discovery --look-back --account --qos --cluster --node --gpu-type --gpus-per-node "
    "--place --source --fields --start --columns --job --run-name --series --accelerators --table "
    "--engine --engine-option --memory-limit"
)
_EXPERT_OF = {
    "report": "--nodes",
    "failures": "--interval --gpu-hour-price",
    "nodes": "--interval --user --partition --gpu-hour-price",
    "runs": "--interval --restart --write",
    "goodput": "--interval",
    "checks": "--incident --while-idle --symptom --horizon --user --partition",
    "lemons": "--anonymise --fit-days --score-days --drain-days",
    "plan": "--step --bandwidth --network --device --host-memory --storage-space --replicas "
    "--replace --durable-every --one-writer-share --embedding-share --expert-share "
    "--logged-bytes --failure-shares --assume --within --chance --phases --maintenance "
    "--node-type --explain --gate --doomed --catch --bad-links --routing --link-goodput "
    "--exposed-share --law --bursts --detection --repair-law "
    "--node-age --seed --precision --versus --partition --user",
    "project": "--seen-gpus-per-node --ages --clock --repair-law --user",
    "compare": "--user",
    "timeline": "--most-jobs --most-nodes --user",
    "export": "--restart --write --user",
    "watch": "--interval --slo --watched --step",
    "gate query": "--edits --batch --seed --run --step",
}
_DAILY_OF = {
    "nodes": "--place",
    "export": "--table",
    "plan": "--gpus-per-node",
    "project": "--gpus-per-node",
    "compare": "--cluster",
    "ingest": "--cluster --gpus-per-node",
    "collect": "--cluster",
}


def is_expert(command: str, flag: str) -> bool:
    """Whether only `--help-all` shows an option of a command."""
    if flag in _DAILY_OF.get(command, "").split():
        return False
    return flag in _EXPERT.split() or flag in _EXPERT_OF.get(command, "").split()


def with_help_all(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option that shows those which its first help leaves out."""
    parameters = [*inspect.signature(command).parameters.values()]

    def asked(help_all: bool = False, **given: Any) -> None:
        command(**given)

    added = inspect.Parameter(
        HELP_ALL, inspect.Parameter.KEYWORD_ONLY, annotation=_SHOWS_ALL, default=False
    )
    parameters.append(added)
    asked.__name__, asked.__doc__ = command.__name__, command.__doc__
    asked.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {one.name: one.annotation for one in parameters}
    return asked


def _show_all(context: typer.Context, asked: bool) -> None:
    """Print the help with all options, and end."""
    if asked and not context.resilient_parsing:
        context.meta[ALL_SHOWN] = True
        typer.echo(context.get_help())
        raise typer.Exit


_SHOWS_ALL = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show all options."),
]


# -- a site's own defaults: `ettr.toml` in the working folder, or the file of `--config` -----------


SITE_FILE = "ettr.toml"
_OPTION = "--config"
_PARAMETERS = {
    "timezone": "timezone",
    "interval": "interval",
    "restart": "restart",
    "write": "write",
    "price": "gpu_hour_price",
    "gpus-per-node": "gpus_per_node",
    "fleet-nodes": "fleet_nodes",
    "taxonomy": "taxonomy",
    "believe": "believe",
    "window": "window",
    "burst-gap": "burst_gap",
    "sticky-gap": "sticky_gap",
    "log-tolerance": "log_tolerance",
    "confidence": "confidence",
    "above-gpus": "above_gpus",
    "preemption-window": "preemption_window",
    "preemption-tolerance": "preemption_tolerance",
    "run-id": "run_id",
}
_CLASSES = "classes"
"""A table of the file: sets of nodes by name, each a list or a pattern as `--node` takes it."""
WATCH = "watch"
"""A table of the file: what `ettr watch` follows and serves."""
_NOT_OF = {
    "plan": ("interval",),  # it asks which is best
    "project": ("interval",),
    "simulate": tuple(_PARAMETERS.values()),
    "measure-recovery": tuple(_PARAMETERS.values()),
}
_RUNNERS = ("elastic", "chaos")
"""Commands that run another program: every word after their name may be that program's."""
_PRICED_WITH = {"failures": "--list", "compare": "--previous"}
"""Commands that put a price on GPU-hours with one of their options only."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    """Defaults of a site.

    Attributes:
        name: The file; empty for none.
        values: Each by the parameter that it is the default of.
    """

    name: str = ""
    values: Mapping[str, Any] | None = None

    def blamed(self, message: str, words: Sequence[str]) -> str:
        """The message, which names file and key where it is about an option that nobody typed."""
        for key, parameter in _PARAMETERS.items():
            flag = f"--{parameter.replace('_', '-')}"
            if parameter in (self.values or {}) and flag not in {
                word.partition("=")[0] for word in words
            }:
                about = rf"^(?:Invalid value for ')?(?:--)?{flag[2:]}(?![\w-])(?:':)?"
                message = re.sub(about, f"{self.name}: {key}", message)
        return message

    def defaults(self, command: str | None, words: Sequence[str]) -> dict[str, Any]:
        """Defaults of a command's parameters, as a parser takes them."""
        if command is None or self.values is None:
            return {}
        without = {*_NOT_OF.get(command, ())}
        if command in _PRICED_WITH and _PRICED_WITH[command] not in words:
            without.add("gpu_hour_price")
        return {
            command: {name: value for name, value in self.values.items() if name not in without}
        }


def site_file(words: Sequence[str]) -> tuple[SiteFile, list[str]]:
    """The site's defaults, and the words of the command line as its parser takes them.

    They are without `--config FILE`, and with the nodes of a class in place of its name.

    Raises:
        UsageError: the file is absent or no TOML, or has a key that is no setting.
    """
    own, rest = _split(words)
    taken: list[str] = []
    path = None
    while own:
        word = own.pop(0)
        if word.startswith(f"{_OPTION}="):
            path = Path(word.partition("=")[2])
        elif word == _OPTION:
            if not own:
                raise UsageError(f"{_OPTION}: give a file, such as {SITE_FILE}")
            path = Path(own.pop(0))
        else:
            taken.append(word)
    if path is None:
        path = Path(SITE_FILE)
        if not path.is_file():
            return SiteFile(), [*taken, *rest]
    found = _read(path)
    classes = _classes(path, found.pop(_CLASSES, {}))
    named = {"watched": found.pop(WATCH, None), "slo": found.pop(TABLE, None)}
    tables = {option: str(path) for option, table in named.items() if table}
    return SiteFile(str(path), _settings(path, found) | tables), [
        *_in_nodes(taken, classes),
        *rest,
    ]


def _in_nodes(words: list[str], classes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The words, with the nodes of a class in place of its name after `--node`."""
    for place, word in enumerate(words):
        flag, _, name = word.partition("=")
        name = name or "".join(words[place + 1 : place + 2])
        if flag == "--node" and name in classes:
            yield from (f"--node={one}" for one in classes[name])
        elif not (word in classes and words[:place][-1:] == ["--node"]):
            yield word


def _classes(path: Path, found: Any) -> dict[str, Sequence[str]]:
    made: dict[str, Sequence[str]] = {}
    for name, nodes in found.items() if isinstance(found, dict) else [("", None)]:
        several = [nodes] if isinstance(nodes, str) else nodes
        if not (isinstance(several, list) and all(isinstance(one, str) for one in several)):
            raise UsageError(
                f'{path}: {_CLASSES} holds lines such as old = "gpu[001-100]", or a list of such '
                f"texts, and {name or 'its value'} is no such line"
            )
        made[name] = several
    return made


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of ettr, and those of a command that it runs."""
    end = words.index("--") if "--" in words else len(words)
    named = (
        place
        for place, word in enumerate(words[:end])
        if not word.startswith("-") and words[place - 1 : place] != [_OPTION]
    )
    place = next(named, end)
    if words[place:end] and words[place] in _RUNNERS:
        end = place
    return [*words[:end]], [*words[end:]]


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as TOML ({error})") from error


def _settings(path: Path, found: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in found.items():
        if key not in _PARAMETERS:
            close = difflib.get_close_matches(key, _PARAMETERS, 1)
            meant = f"; did you mean {close[0]}" if close else ""
            raise UsageError(
                f"{path}: no setting is called {key!r}{meant}; settings are "
                f"{', '.join(_PARAMETERS)}, and the tables {_CLASSES}, {WATCH} and [[{TABLE}]]"
            )
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise UsageError(f"{path}: {key} takes text or a number, not {type(value).__name__}")
        # as typed: a path in the file is relative to it
        made[_PARAMETERS[key]] = str(path.parent / str(value)) if key == "taxonomy" else str(value)
    return made
