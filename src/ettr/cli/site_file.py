"""A site's own defaults: `ettr.toml` in the working folder, or the file of `--config`."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ettr.errors import UsageError
from ettr.metrics.objectives import TABLE

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
