"""Saved tensors under other names: a module that was renamed, wrapped or unwrapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ettr.errors import UsageError

_FACTOR = "#"  # before the name of a moment with blocks of its own


def live_name(saved: str, rename: Mapping[str, str]) -> str:
    """The name that a saved tensor has now.

    Args:
        rename: names, or beginnings of names up to a dot (`""`: of all), each with what it is now.
    """
    name, mark, factor = saved.partition(_FACTOR)
    fitting = [old for old in rename if old in ("", name) or name.startswith(f"{old}.")]
    if not fitting:
        return saved
    old = max(fitting, key=len)
    rest = name[len(old) :].removeprefix(".")
    return ".".join(filter(None, (rename[old], rest))) + mark + factor


def check_rename(saved: Iterable[str], rename: Mapping[str, str]) -> None:
    """Pass if each entry names a saved tensor, and no two tensors get one name."""
    names = set(saved)
    now: dict[str, str] = {}
    for name in sorted(names):
        new = live_name(name, rename)
        if now.setdefault(new, name) != name:
            raise UsageError(f"rename: {now[new]} and {name} would both be {new}")
    for old in rename:
        if old and not any(
            name == old or name.startswith((f"{old}.", f"{old}#")) for name in names
        ):
            raise UsageError(f"rename: no saved tensor is called {old!r}, or begins so")


def rename_for(saved: Mapping[str, object], live: Mapping[str, object]) -> dict[str, str]:
    """The `rename` with which saved tensors that have no place may fit live ones; empty: none."""
    rename: dict[str, str] = {}
    left, free = dict(saved), dict(live)
    while left:
        votes: dict[tuple[str, str], int] = {}
        for one, shape in left.items():
            for other in (name for name, of_name in free.items() if of_name == shape):
                for pair in _beginnings(one, other):
                    votes[pair] = votes.get(pair, 0) + 1
        if not votes:
            break
        # the most tensors at once, by the shortest names
        old, new = max(votes, key=lambda pair: (votes[pair], -len(pair[1]), -len(pair[0])))
        rename[old] = new
        taken = {name: live_name(name, {old: new}) for name in left}
        taken = {name: now for name, now in taken.items() if now in free and now != name}
        left = {name: shape for name, shape in left.items() if name not in taken}
        free = {name: shape for name, shape in free.items() if name not in taken.values()}
    return rename


def _beginnings(saved: str, live: str) -> list[tuple[str, str]]:
    """What may have been renamed to make a live name of a saved one."""
    old, new = saved.split("."), live.split(".")
    if old[:-1] == new[:-1]:
        return [(saved, live)]
    same = 0
    while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    if not same:
        return []
    return [(".".join(old[: len(old) - same]), ".".join(new[: len(new) - same]))]
