"""A site's own defaults: `ettr.toml` in the working folder, or the file of `--config`."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ettr.errors import UsageError

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
    """The site's defaults, and the words of the command line without `--config FILE`.

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
    return SiteFile(str(path), _read(path)), [*taken, *rest]


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
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as TOML ({error})") from error
    made: dict[str, Any] = {}
    for key, value in found.items():
        if key not in _PARAMETERS:
            close = difflib.get_close_matches(key, _PARAMETERS, 1)
            meant = f"; did you mean {close[0]}" if close else ""
            raise UsageError(
                f"{path}: no setting is called {key!r}{meant}; settings are "
                f"{', '.join(_PARAMETERS)}"
            )
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise UsageError(f"{path}: {key} takes text or a number, not {type(value).__name__}")
        # as typed: a path in the file is relative to it
        made[_PARAMETERS[key]] = str(path.parent / str(value)) if key == "taxonomy" else str(value)
    return made
