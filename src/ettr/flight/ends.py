"""Records in which nothing waits any more, as they were written after the collective was given up.

After a timeout, or once a peer is gone, every rank's last call retires: gloo's records do not say
whether it succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass

from ettr.flight.calls import Call, GroupCalls
from ettr.flight.verdict import StuckCollective, VerdictKind
from ettr.flight.waits import FlightEvidence, sizes_text

# calls that end on a rank only after every member has made them
_NEED_ALL = (
    *("all_reduce", "allreduce", "barrier", "all_gather", "allgather", "reduce_scatter"),
    *("all_to_all", "alltoall"),
)
_FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Ending:
    """A verdict on records that were written after the end."""

    kind: VerdictKind
    culprits: tuple[int, ...]
    stuck: tuple[StuckCollective, ...]
    reasons: tuple[str, ...]


def after_the_end(evidence: FlightEvidence) -> Ending | None:
    """What is left to say where the last call was given up; None where nothing shows that."""
    for group in evidence.groups:
        members = evidence.members(group)
        absent = tuple(sorted(rank for rank in members if evidence.is_absent(rank)))
        reached = {
            rank: group.newest.get(rank, -1)
            for rank in sorted(members.difference(absent))
            if not evidence.records[rank].wrapped or rank in group.newest
        }
        least, last = min(reached.values(), default=0), max(group.calls, default=0)
        for seq, call in group.in_order():
            if call.open or (seq <= least and seq != last and not call.aborted):
                continue
            behind = tuple(rank for rank, newest in reached.items() if newest < seq)
            if call.aborted or (absent and seq == last) or _given_up(call, behind, evidence):
                return _ending(evidence, group, seq, call, behind, absent)
    return None


def _given_up(call: Call, behind: tuple[int, ...], evidence: FlightEvidence) -> bool:
    """Whether the call ended on some ranks although others never made it."""
    later = [rank for rank in behind if not evidence.is_older(rank, call)]
    records = [evidence.records[rank] for rank in call.ranks]
    if any(one.after_s is not None for one in records):
        # records of the watcher say whether the program failed
        return bool(later) and any(one.reason == _FAILURE for one in records)
    return bool(later) and _needs_all(call)


def _needs_all(call: Call) -> bool:
    kind = call.signature.name.rpartition(":")[2].lstrip("_")
    return kind.startswith(_NEED_ALL)


def _ending(
    evidence: FlightEvidence,
    group: GroupCalls,
    seq: int,
    call: Call,
    behind: tuple[int, ...],
    absent: tuple[int, ...],
) -> Ending:
    times = [evidence.records[rank].known_ns for rank in call.ranks]
    written_ns = max((one for one in times if one is not None), default=call.first_ns)
    elapsed_s, timeout_s = (written_ns - call.first_ns) / 1e9, call.timeout_ms / 1e3
    timed_out = bool(timeout_s) and elapsed_s >= timeout_s
    known = absent and not timed_out
    stuck = StuckCollective(
        kind=VerdictKind.NO_RECORD if known else VerdictKind.UNKNOWN,
        group=group.name,
        description=group.description,
        members=None if group.members is None else len(group.members),
        seq=seq,
        name=call.signature.name,
        sizes=sizes_text(call.signature),
        started=tuple(sorted(call.ranks)),
        waiting=(),
        missing=behind,
        mismatched=(),
        without_record=absent,
        overwritten=(),
        calls=(),
        waited_s=None,
        culprits=absent if known else (),
    )
    reasons = () if known else (_after(stuck, timeout_s if timed_out else None),)
    return Ending(stuck.kind, stuck.culprits, (stuck,), reasons)


def _after(stuck: StuckCollective, timeout_s: float | None) -> str:
    when = f"its timeout of {timeout_s:g} s" if timeout_s else "it was given up"
    return (
        f"the records were written after {when}: {stuck.name} {stuck.seq} of group {stuck.group} "
        "waits on no rank any more, and what ranks did since then shows no cause. Records must be "
        "written while it hangs"
    )
