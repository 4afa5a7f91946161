"""From the calls of all ranks to a verdict: who holds the job up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from ettr.errors import UsageError
from ettr.flight.folder import Call, FlightFolder, GroupCalls
from ettr.flight.waits import FlightEvidence, WaitingCall, sizes_text, waiting_calls


class VerdictKind(StrEnum):
    """What holds a job up, as far as its flight records show it."""

    MISSING = "missing"
    MISMATCH = "mismatch"
    NO_RECORD = "no record"
    CIRCULAR = "circular wait"
    ALL_INSIDE = "all inside"
    LATE = "late"
    NOTHING_HANGS = "nothing hangs"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that others wait for and that waits for none of them.

    `node` is None where neither the launch nor the files' names place the rank.
    """

    rank: int
    node: str | None
    because: str


@dataclass(frozen=True, slots=True)
class StuckCollective:
    """The first collective of a group that some ranks started and that did not end.

    Rank lists are global ranks. `waiting`: it has not ended there. `missing`: members whose record
    lacks it. `mismatched`: members that called something else in its place. `without_record`:
    members that left no record, or only one older than this call. `overwritten`: members whose
    record no longer reaches back to their calls of this group. `waited_s`: from the first
    rank's call to the last record; None where no record says when it was written. `culprits`: whom
    the waiting ranks wait for in the end, in another group perhaps.
    """

    kind: VerdictKind
    group: str
    description: str
    members: int | None
    seq: int
    name: str
    sizes: str
    started: tuple[int, ...]
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    mismatched: tuple[int, ...]
    without_record: tuple[int, ...]
    overwritten: tuple[int, ...]
    calls: tuple[tuple[str, int], ...]
    waited_s: float | None
    culprits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LateRank:
    """A rank that was the last to start collectives that all started, by a second or more."""

    rank: int
    node: str | None
    times: int
    longest_s: float
    group: str
    seq: int
    after_timeout: bool


@dataclass(frozen=True, slots=True)
class FlightVerdict:
    """The verdict on a folder of flight records.

    `world_size` is None where neither a record nor the call states it: ranks beyond the highest
    one with a record then go unnoticed. `reasons` says why where the verdict is `cannot tell`, and
    what else limits it.
    """

    verdict: VerdictKind
    culprits: tuple[Culprit, ...]
    stuck: tuple[StuckCollective, ...]
    late: tuple[LateRank, ...]
    world_size: int | None
    records: int
    without_record: tuple[int, ...]
    reasons: tuple[str, ...]
    superseded: int
    refused: int
    unreadable_entries: int


_MOST_LISTED = 64

_WITHOUT_ENTRIES = (
    "all of them are records without entries that can be read, which show neither a hang nor its "
    "absence: set TORCH_FR_BUFFER_SIZE above 0 (TORCH_NCCL_TRACE_BUFFER_SIZE in older versions), "
    "and look whether these processes made any collective call"
)
_BECAUSE = {
    VerdictKind.MISSING: "did not start it, and waits for nobody",
    VerdictKind.MISMATCH: "called something else than the others",
    VerdictKind.LATE: "was the last to start it",
    VerdictKind.NO_RECORD: "left no record: killed, stopped, or unable to write one",
}


def judge(
    folder: FlightFolder, ranks: int | None = None, nodes: Mapping[int, str] | None = None
) -> FlightVerdict:
    """The verdict on the records of a folder.

    Waits are followed from rank to rank and from group to group: a rank that did not start a
    collective because it waits in another one is no culprit, those it waits for are.

    Args:
        ranks: how many ranks the job had, where the records do not say.

    Raises:
        UsageError: there are records of more ranks.
    """
    at_least = 1 + max(folder.records)
    if ranks is not None and ranks < at_least:
        raise UsageError(f"--ranks {ranks}: there is a record of rank {at_least - 1}")
    stated = max(filter(None, (ranks, folder.world_size)), default=None)
    world_size = None if stated is None else max(stated, at_least)
    evidence = FlightEvidence(folder.records, world_size, folder.table.groups())
    stuck = _stuck(evidence)
    reasons = _limits(folder, evidence, world_size)
    late = late_ranks(evidence)
    ended = None if any(one.culprits for one in stuck) else after_the_end(evidence)
    if any(one.kind is VerdictKind.CIRCULAR or one.culprits for one in stuck):
        kind = next(
            (one.kind for one in stuck if one.kind is not VerdictKind.ALL_INSIDE), stuck[0].kind
        )
        because = _because(stuck)
    elif ended is not None:
        kind, because = ended.kind, dict.fromkeys(ended.culprits, _BECAUSE[VerdictKind.NO_RECORD])
        reasons = (*ended.reasons, *reasons)
        stuck = (*ended.stuck, *stuck)
    elif stuck:
        kind, because = stuck[0].kind, {}
        if kind is VerdictKind.UNKNOWN:
            reasons = (_overwritten(stuck[0]), *reasons)
    elif late:
        kind, because = VerdictKind.LATE, {late[0].rank: f"started {late[0].longest_s:.1f} s late"}
    elif not any(group.calls for group in evidence.groups):
        kind, because, reasons = VerdictKind.UNKNOWN, {}, (_WITHOUT_ENTRIES, *reasons)
    else:
        kind, because = VerdictKind.NOTHING_HANGS, {}
    node_of = _nodes(folder, nodes)
    return FlightVerdict(
        verdict=kind,
        culprits=tuple(Culprit(rank, node_of(rank), because[rank]) for rank in sorted(because)),
        stuck=stuck[:_MOST_LISTED],
        late=tuple(one.on(node_of(one.rank)) for one in late[:_MOST_LISTED]),
        world_size=world_size,
        records=len(folder.records),
        without_record=evidence.absent_from_job,
        reasons=reasons,
        superseded=folder.superseded,
        refused=len(folder.refused),
        unreadable_entries=sum(one.unreadable_entries for one in folder.records.values())
        + folder.table.entries_left_out,
    )


def _nodes(folder: FlightFolder, stated: Mapping[int, str] | None) -> Callable[[int], str | None]:
    def node_of(rank: int) -> str | None:
        if stated is not None and rank in stated:
            return stated[rank]
        record = folder.records.get(rank)
        return record.node if record is not None else None

    return node_of


def _stuck(evidence: FlightEvidence) -> tuple[StuckCollective, ...]:
    """The first call of each group that waits for somebody; if none does, those that are open."""
    waits = waiting_calls(evidence)
    blocked = [one for one in waits if one.blockers]
    edges: dict[int, set[int]] = {}
    for one in blocked:
        for rank in one.waiting:
            edges.setdefault(rank, set()).update(one.blockers - {rank})
    first: dict[int, WaitingCall] = {}
    for one in blocked or waits:
        first.setdefault(id(one.group), one)
    found = [_judged(one, edges, evidence) for one in first.values()]
    # groups that wait for a culprit of their own come before those that it holds up elsewhere
    return tuple(
        sorted(found, key=lambda one: (not set(one.culprits) & _of_its_own(one), one.group))
    )


def _of_its_own(stuck: StuckCollective) -> set[int]:
    return {*stuck.missing, *stuck.mismatched, *stuck.without_record}


def _judged(
    one: WaitingCall, edges: Mapping[int, set[int]], evidence: FlightEvidence
) -> StuckCollective:
    present, absent, circle = roots(
        one.blockers - one.mismatched,
        edges,
        lambda rank: rank in one.absent or evidence.is_absent(rank),
    )
    if one.mismatched:
        kind, culprits = VerdictKind.MISMATCH, set(one.mismatched)
    elif present:
        kind, culprits = VerdictKind.MISSING, present
    elif absent:
        kind, culprits = VerdictKind.NO_RECORD, absent
    elif circle:
        kind, culprits = VerdictKind.CIRCULAR, set()
    elif one.overwritten:
        kind, culprits = VerdictKind.UNKNOWN, set()
    elif one.call.lag_s >= LATE_S:
        kind, culprits = VerdictKind.LATE, {one.call.last_rank}
    else:
        kind, culprits = VerdictKind.ALL_INSIDE, set()
    return StuckCollective(
        kind=kind,
        group=one.group.name,
        description=one.group.description,
        members=None if one.group.members is None else len(one.group.members),
        seq=one.seq,
        name=one.call.signature.name,
        sizes=sizes_text(one.call.signature),
        started=tuple(sorted(one.call.ranks)),
        waiting=tuple(sorted(one.waiting)),
        missing=tuple(sorted(one.missing)),
        mismatched=tuple(sorted(one.mismatched)),
        without_record=tuple(sorted(one.absent)),
        overwritten=tuple(sorted(one.overwritten)),
        calls=one.called(),
        waited_s=one.waited_s,
        culprits=tuple(sorted(culprits)),
    )


def roots(
    blockers: Iterable[int], edges: Mapping[int, set[int]], is_absent: Callable[[int], bool]
) -> tuple[set[int], set[int], set[int]]:
    """Whom a wait leads to in the end.

    Returns:
        Ranks with a record that wait for nobody; ranks without a record; and every rank on the
        way, which is a circle where the first two are empty.
    """
    present: set[int] = set()
    absent: set[int] = set()
    visited: set[int] = set()
    ahead = list(blockers)
    while ahead:
        rank = ahead.pop()
        if rank in visited:
            continue
        visited.add(rank)
        if is_absent(rank):
            absent.add(rank)
        elif edges.get(rank):
            ahead.extend(edges[rank])
        else:
            present.add(rank)
    return present, absent, visited


def _because(stuck: Iterable[StuckCollective]) -> dict[int, str]:
    because: dict[int, str] = {}
    for one in stuck:
        for rank in one.culprits:
            because.setdefault(rank, _BECAUSE[one.kind])
    return because


def _overwritten(stuck: StuckCollective) -> str:
    ranks = ", ".join(map(str, stuck.overwritten[:16]))
    return (
        f"the records of ranks {ranks} no longer reach back to their calls of group "
        f"{stuck.group}; a larger TORCH_FR_BUFFER_SIZE keeps more"
    )


def _limits(
    folder: FlightFolder, evidence: FlightEvidence, world_size: int | None
) -> tuple[str, ...]:
    """What limits the verdict, whatever it is."""
    limits = []
    if world_size is None:
        highest = max(folder.records)
        limits.append(
            f"no record says how many ranks there were: a rank above {highest} that left none "
            "would go unnoticed; state the number with --ranks"
        )
    unknown = sum(one.members is None and not _is_default(one) for one in evidence.groups)
    if unknown:
        limits.append(
            f"members of {unknown} groups are not recorded: a member that never called is unknown"
        )
    return tuple(limits)


def _is_default(group: GroupCalls) -> bool:
    return group.description == "default_pg"


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


# clocks of nodes agree to milliseconds; shorter waits are every job's
LATE_S = 1.0


@dataclass(slots=True)
class _Lateness:
    times: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    group: str = ""
    seq: int = 0
    after_timeout: bool = False


@dataclass(frozen=True, slots=True)
class Late:
    """A late rank without its node."""

    found: LateRank

    @property
    def rank(self) -> int:
        """The rank."""
        return self.found.rank

    @property
    def longest_s(self) -> float:
        """Its longest lag behind the first rank."""
        return self.found.longest_s

    def on(self, node: str | None) -> LateRank:
        """The result, with the node."""
        return replace(self.found, node=node)


def late_ranks(evidence: FlightEvidence) -> list[Late]:
    """Ranks that were last by a second or more, those that cost the most time first.

    The first call of a group is left out: ranks do not start up together.
    """
    found: dict[int, _Lateness] = {}
    for group in evidence.groups:
        members = len(evidence.members(group))
        first = min(group.calls, default=0)
        for seq, call in group.in_order():
            if len(call.ranks) < members or call.lag_s < LATE_S or seq == first:
                continue
            late = found.setdefault(call.last_rank, _Lateness())
            late.times += 1
            late.total_s += call.lag_s
            late.after_timeout |= bool(call.timeout_ms) and call.lag_s >= call.timeout_ms / 1e3
            if call.lag_s > late.longest_s:
                late.longest_s, late.group, late.seq = call.lag_s, group.name, seq
    ranked = sorted(found.items(), key=lambda item: -item[1].total_s)
    return [
        Late(LateRank(rank, None, one.times, one.longest_s, one.group, one.seq, one.after_timeout))
        for rank, one in ranked
    ]
