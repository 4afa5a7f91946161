"""States of nodes from the controller's own log, where no other log has them.

`slurmctld.log` says when a node was drained or went down, why, and when it came back. It is read
line by line as events; here they become the intervals that `sacctmgr show event` would give. Its
files are rotated, so that the end of an interval may stand in another file than its beginning.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ettr.facts import Facts, made
from ettr.facts.stored import narrow_columns
from ettr.tables import NODE_STATES

# what each line begins: the state, its flags, and the reason where no line gives one
_BEGINS = {
    "DRAIN": ("DRAIN", None, None),
    "EPILOG_ERROR": ("DRAIN", None, "Epilog error"),
    "NODE_FAILING": ("FAIL", None, None),
    "NODE_DOWN": ("DOWN", None, None),
    "STATE_MAINT": ("MAINT", None, None),
    # a node that registers with less than configured, where the line says that it is out for it
    "CONFIG_MISMATCH": ("INVALID_REG", None, None),
}
_INVALID = re.compile(r"\bto INVAL")
_ENDS, _REASON, _MISMATCH = "NODE_RESUMED", "REASON", "CONFIG_MISMATCH"
_SILENT = ("NOT_RESPONDING", "Not responding")
_SET_REASON = re.compile(r"reason set to: ?(.*)")
_OWN_REASON = re.compile(r"(?:state set to [A-Z_+*]+: ?|with reason: ?)(.*)")
# of one update Slurm writes reason and state next to each other, in either order
_ONE_UPDATE_US = 2_000_000
_COLUMNS = (("place", "BIGINT"), *narrow_columns(NODE_STATES).items())

_Line = Mapping[str, Any]


@dataclass(slots=True)
class _State:
    """One interval of one node, and the line that begins it."""

    state: str
    flags: str | None
    reason: str | None
    start_us: int
    end_us: int | None
    line: _Line


@made("controller_begun", _COLUMNS, reads=("state_lines",))
def _controller_begun(facts: Facts) -> list[tuple[object, ...]]:
    """One row is a state of a node as the controller's log alone has it, with a number of its own.

    Its end is null where no line gives one.
    """
    of_node: dict[tuple[str, str], list[_Line]] = defaultdict(list)
    for line in facts.rows("state_lines"):
        of_node[line["cluster"], line["node"]].append(line)
    found = [one for _, lines in sorted(of_node.items()) for one in _intervals(lines)]
    return [(place, *_row(one)) for place, one in enumerate(found)]


def _intervals(lines: Sequence[_Line]) -> list[_State]:
    """States of one node from its lines; the last may be open."""
    found: list[_State] = []
    open_states: list[_State] = []
    reason: tuple[int, str] | None = None
    for line in lines:
        time_us, code, message = line["time_us"], line["code"], line["message"] or ""
        if code == _REASON:
            given = _SET_REASON.search(message)
            reason = (time_us, given[1].strip()) if given else None
            for one in open_states:
                if reason and one.reason is None and time_us - one.start_us <= _ONE_UPDATE_US:
                    one.reason = reason[1]
        elif code == _ENDS:
            for one in open_states:
                one.end_us = time_us
            open_states = []
        elif code != _MISMATCH or _INVALID.search(message):
            state, flags, usual = _BEGINS[code]
            if any(one.state == state for one in open_states):
                continue
            own = _OWN_REASON.search(message)
            text = own[1].strip() if own else None
            if text is None and reason and time_us - reason[0] <= _ONE_UPDATE_US:
                text = reason[1]
            if state == "DOWN" and "not responding" in message:
                flags, usual = _SILENT
            if text and code == _MISMATCH:
                # the drain that follows is for the same
                reason = (time_us, text)
            open_states.append(_State(state, flags, text or usual, time_us, None, line))
            found.append(open_states[-1])
    return found


def _row(one: _State) -> tuple[object, ...]:
    values = {
        **{name: one.line[name] for name in ("cluster", "node", "source", "file_id", "line")},
        "state": one.state,
        "flags": one.flags,
        "reason": one.reason or None,
        "start_us": one.start_us,
        "end_us": one.end_us,
    }
    return tuple(values.get(name) for name in narrow_columns(NODE_STATES))


# -- Who cancelled a job, from the controller's log, where the accounting does not say it ---------
#
# After a restart of the controller Slurm sends jobs to the accounting again, and `CANCELLED by
# 0` becomes plain `CANCELLED`. The controller's log keeps the request with the uid of who made
# it.

_UID = re.compile(r"\buid[ =](\d+)", re.ASCII)


@made("cancellers", (("attempt_id", "VARCHAR"), ("uid", "VARCHAR")), reads=("cancel_requests",))
def _cancellers(facts: Facts) -> list[tuple[object, ...]]:
    """One row is an attempt and who cancelled it, which the controller's log alone says.

    The last request near the end of the job counts.
    """
    found = []
    for row in facts.rows("cancel_requests"):
        uid = _UID.search(row["message"] or "")
        if uid:
            found.append((row["time_us"], uid[1], row["attempt_id"]))
    return list({attempt_id: uid for _, uid, attempt_id in sorted(found)}.items())
