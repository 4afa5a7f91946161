"""Where the parts of a report are registered: each once, next to its section.

A module of `ettr.report.sections` registers a part by a statement at its top level:

    SIZES = Part("sizes", place=190, question=size_mix, section=sizes_section, main="classes")

The page, the JSON document and its schema, the command, the attribute of `ettr.Fleet` and the
reference follow from it. The list of parts and what `ettr --help` says of them are read off the
text of that statement, so that a command loads no part but its own: name, `place` and `command`
are literals.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from ettr.analysis import Analysis
    from ettr.report.section import Section

CAUSES = ("taxonomy", "believe", "window", "burst_gap", "sticky_gap", "log_tolerance")
"""Options of every command whose numbers rest on the causes of failures."""
NO_JOBS = (
    "Not measured: the logs hold no job accounting. Add it (`ettr sources` shows how to "
    "export it from each scheduler)."
)
AnswerT = TypeVar("AnswerT")
Sections: TypeAlias = "tuple[Section, ...]"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that prints one part."""

    help: str
    options: tuple[str, ...]
    place: int
    examples: tuple[str, ...]
    priced: bool = True


@dataclass(frozen=True, slots=True)
class Part(Generic[AnswerT]):
    """One part of a report.

    Attributes:
        name: Its key in the JSON document, and the attribute of `ettr.Fleet`.
        place: On the page and in the document; parts stand 10 apart.
        question: `def question(facts, given) -> Answer`; see `ettr.analysis.assumptions`. Its first
            line is what Python's help says. None where the part only joins others.
        sections: of the analysis, where it needs more, or shows several or none.
        main: The list in the answer that CSV and data frames have one row an entry of; empty where
            the answer itself is one row.
        title: The heading of the one section that says so where there are no jobs; given if only
            jobs can fill the part, which is then null in the document.
        in_python: Whether it is an attribute of `ettr.Fleet`.
        command: The command that prints it; None for none, or for one with a module of its own.
    """

    name: str
    _: KW_ONLY
    place: int
    question: Callable[..., AnswerT] | None = None
    section: Callable[[AnswerT], Section] | None = None
    sections: Callable[[Analysis], Sections] | None = None
    main: str = ""
    joined: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    title: str = ""
    on_page: bool | Callable[[Analysis], bool] = True
    in_python: bool = True
    command: Command | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """What the text of a registration says: the part, where it is, and its command."""

    name: str
    place: int
    module: str
    variable: str
    command: Command | None


_SECTIONS = "ettr.report.sections"
_STATEMENT = re.compile(
    r"^([A-Z_]+)(?:: [^=\n]+)? = Part\((?:.*\)$|\n(?:    .*\n)+\)$)", re.MULTILINE
)


def registered() -> dict[str, Registered]:
    """All registrations by the name of the part, in the order of the page.

    Raises:
        LookupError: two parts have one name.
    """
    folders = importlib.import_module(_SECTIONS).__path__
    found = [one for folder in folders for one in _of_folder(folder)]
    found.sort(key=lambda one: (one.place, one.name))
    by_name = {one.name: one for one in found}
    if len(by_name) < len(found):
        names = sorted(one.name for one in found)
        twice = [name for name, following in pairwise(names) if name == following]
        raise LookupError(f"{', '.join(twice)}: registered twice; rename one of them")
    return by_name


@cache
def _of_folder(folder: str) -> tuple[Registered, ...]:
    return tuple(
        _read(found, path)
        for path in sorted(Path(folder).glob("*.py"))
        for found in _STATEMENT.finditer(path.read_text("utf-8"))
    )


def _read(found: re.Match[str], path: Path) -> Registered:
    (statement,) = ast.parse(found[0]).body
    call = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
    if not isinstance(call, ast.Call):
        raise TypeError(f"{path}: {found[1]} is not a call of Part")
    given = {one.arg: one.value for one in call.keywords}
    command = given.get("command")
    says = {one.arg or "": _literal(one.value) for one in getattr(command, "keywords", ())}
    return Registered(
        name=_literal(call.args[0]),
        place=_literal(given["place"]),
        module=f"{_SECTIONS}.{path.stem}",
        variable=found[1],
        command=Command(**says) if command is not None else None,
    )


def _literal(node: ast.expr) -> Any:
    """The value of a literal, in which `*CAUSES` may stand."""
    if isinstance(node, ast.Starred):
        return CAUSES
    if isinstance(node, ast.Tuple):
        one_by_one = ((isinstance(item, ast.Starred), _literal(item)) for item in node.elts)
        return tuple(chain.from_iterable(v if many else (v,) for many, v in one_by_one))
    return ast.literal_eval(node)


def part(name: str) -> Part[Any]:
    """The part of that name. Raises KeyError: there is none."""
    one = registered()[name]
    found: Part[Any] = getattr(importlib.import_module(one.module), one.variable)
    return found


class _RegisteredParts(Mapping[str, Part[Any]]):
    """The parts by name, each loaded when it is asked for."""

    def __getitem__(self, name: str) -> Part[Any]:
        return part(name)

    def __iter__(self) -> Iterator[str]:
        return iter(registered())

    def __len__(self) -> int:
        return len(registered())


PARTS: Mapping[str, Part[Any]] = _RegisteredParts()
"""The parts by their keys in the JSON document, in the order of the page."""
