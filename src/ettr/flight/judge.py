"""From the calls of all ranks to a verdict: who holds the job up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from ettr.errors import UsageError
from ettr.flight.folder import Call, FlightFolder, GroupCalls, RankRecord
from ettr.flight.record import Signature

# -- calls that have not ended, and whom they wait for ---------------------------------------------


DEFAULT_DESCRIPTION = "default_pg"
_PEERS = re.compile(r".*:(?:send (\d{1,9})->(\d{1,9})|recv (\d{1,9})<-(\d{1,9}))")
_LONGEST_SIZES = 80
# of a record that does not say after what stall it was written
SHORTEST_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that has not ended on some ranks, with the members of its group that it lacks."""

    group: GroupCalls
    seq: int
    call: Call
    waiting: frozenset[int]
    missing: frozenset[int]
    mismatched: frozenset[int]
    absent: frozenset[int]
    overwritten: frozenset[int]
    waited_s: float | None

    @property
    def blockers(self) -> frozenset[int]:
        """Whom the waiting ranks wait for."""
        return self.missing | self.mismatched | self.absent

    def called(self) -> tuple[tuple[str, int], ...]:
        """What was called, and on how many ranks, where that is not the same everywhere."""
        if not self.mismatched:
            return ()
        texts = Counter(
            f"{form.name} {sizes_text(form)}"
            for form in map(self.call.signature_on, self.call.ranks)
        )
        return tuple(texts.most_common(8))


@dataclass(frozen=True)
class FlightEvidence:
    """The records and the calls, with what follows from both."""

    records: Mapping[int, RankRecord]
    world_size: int | None
    groups: list[GroupCalls]

    @cached_property
    def absent_from_job(self) -> tuple[int, ...]:
        """Ranks without a record, of those that are known to exist."""
        known = range(self.world_size or 0)
        members = {rank for group in self.groups for rank in group.members or ()}
        return tuple(sorted({*known, *members} - self.records.keys()))

    @cached_property
    def _absent(self) -> frozenset[int]:
        return frozenset(self.absent_from_job)

    def is_absent(self, rank: int) -> bool:
        """Whether the rank left no record, or stopped writing long before the others."""
        return rank in self._absent or rank in self.silent

    def members(self, group: GroupCalls) -> frozenset[int]:
        """The ranks of a group: as stated, all for the default group, else those that called."""
        if group.members is not None:
            return frozenset(group.members)
        if group.description == DEFAULT_DESCRIPTION:
            return frozenset(self.records) | self._absent
        return frozenset(rank for call in group.calls.values() for rank in call.ranks)

    @cached_property
    def newest_ns(self) -> int | None:
        """When the newest record was written, where every record says so."""
        times = [one.written_ns for one in self.records.values()]
        return max((one for one in times if one is not None), default=None)

    @cached_property
    def silent(self) -> frozenset[int]:
        """Ranks whose watcher wrote nothing when the others' did.

        A watcher writes after `after_s` without progress. A record that is older than the newest
        one by more than that, and twice as much for slow disks, comes from another stall.
        """
        if self.newest_ns is None:
            return frozenset()
        return frozenset(
            rank
            for rank, one in self.records.items()
            if one.written_ns is not None
            and one.after_s is not None
            and one.reason != "end"
            and self.newest_ns - one.written_ns > 3e9 * one.after_s + 1e9
        )

    def waited_s(self, call: Call) -> float | None:
        """From the first rank's call to the last record of those that wait in it."""
        times = [
            written
            for rank in call.open
            if (record := self.records.get(rank)) and (written := record.written_ns)
        ]
        return max(0.0, (max(times) - call.first_ns) / 1e9) if times else None

    def is_older(self, rank: int, call: Call) -> bool:
        """Whether the rank's record was written before anybody made the call."""
        known_ns = self.records[rank].known_ns
        return known_ns is not None and known_ns < call.first_ns

    def would_have_written(self, rank: int, call: Call) -> bool:
        """Whether the rank's watcher, had it lived and moved, had time to write since the call."""
        after_s = self.records[rank].after_s
        newest_ns = self.newest_ns
        return (
            after_s is not None
            and newest_ns is not None
            and (newest_ns - call.first_ns) / 1e9 >= after_s
        )

    def in_flight(self, call: Call) -> bool:
        """Whether the ranks in the call have not waited long enough to call it a hang."""
        records = [self.records[rank] for rank in call.open]
        times = [one.known_ns for one in records]
        written_ns = max((one for one in times if one is not None), default=None)
        if written_ns is None:
            return False
        after_s = min((one.after_s for one in records if one.after_s is not None), default=None)
        # a stall is found by one clock and dated by another: half of it is enough
        least_s = SHORTEST_WAIT_S if after_s is None else 0.5 * after_s
        return (written_ns - call.first_ns) / 1e9 < least_s


def waiting_calls(evidence: FlightEvidence) -> list[WaitingCall]:
    """Of each group and rank the oldest call that has not ended, in order of sequence numbers."""
    found = []
    for group in evidence.groups:
        members = evidence.members(group)
        counted: set[int] = set()
        for seq, call in group.in_order():
            waiting = {rank for rank in call.open if not evidence.is_absent(rank)} - counted
            if waiting and not evidence.in_flight(call):
                counted |= waiting
                found.append(_collective(evidence, group, seq, call, members, waiting))
        found += [
            _peers(evidence, group, seq, call)
            for seq, call in sorted(group.p2p.items())
            if call.open and not evidence.in_flight(call)
        ]
    return found


def _collective(
    evidence: FlightEvidence,
    group: GroupCalls,
    seq: int,
    call: Call,
    members: frozenset[int],
    waiting: set[int],
) -> WaitingCall:
    absent = frozenset(rank for rank in members if evidence.is_absent(rank))
    behind = {rank for rank in members - absent if group.newest.get(rank, -1) < seq} - set(
        call.ranks
    )
    overwritten = {
        rank for rank in behind if rank not in group.newest and evidence.records[rank].wrapped
    }
    older = {rank for rank in behind - overwritten if evidence.is_older(rank, call)}
    watched = {rank for rank in older if evidence.would_have_written(rank, call)}
    # it went on after an earlier stall, and wrote nothing of this one
    silent = {rank for rank in watched if evidence.records[rank].reason == "moved"}
    older -= watched
    return WaitingCall(
        group=group,
        seq=seq,
        call=call,
        waiting=frozenset(waiting),
        missing=frozenset(behind - overwritten - older - silent),
        mismatched=frozenset(minority(call)),
        absent=absent | silent,
        overwritten=frozenset(overwritten | older),
        waited_s=evidence.waited_s(call),
    )


def _peers(evidence: FlightEvidence, group: GroupCalls, seq: int, call: Call) -> WaitingCall:
    """A send or receive that has not ended waits for its peer, unless that is in it as well."""
    members = sorted(evidence.members(group))
    peers = {
        peer
        for rank in call.open
        if (peer := _peer(call.signature_on(rank), rank, members)) is not None
    } - set(call.open)
    absent = frozenset(rank for rank in peers if evidence.is_absent(rank))
    return WaitingCall(
        group=group,
        seq=seq,
        call=call,
        waiting=frozenset(call.open),
        missing=frozenset(peers - absent),
        mismatched=frozenset(),
        absent=absent,
        overwritten=frozenset(),
        waited_s=evidence.waited_s(call),
    )


def _peer(signature: Signature, rank: int, members: list[int]) -> int | None:
    """The other rank of `nccl:send 0->1` or `nccl:recv 1<-0`, which count within the group."""
    match = _PEERS.fullmatch(signature.name)
    if match is None:
        return None
    places = [int(one) for one in match.groups() if one is not None]
    ranks = [members[place] for place in places if place < len(members)]
    return next((one for one in ranks if one != rank), None)


def sizes_text(signature: Signature) -> str:
    """The sizes of its input tensors, or of its outputs where it has no inputs."""
    sizes = signature.input_sizes or signature.output_sizes
    text = ", ".join("×".join(map(str, one)) or "scalar" for one in sizes[:8])
    return text if len(text) <= _LONGEST_SIZES else f"{text[:_LONGEST_SIZES]}..."


# what may differ between ranks that call the same (as PyTorch's own trace analyser has it)
_FREE_INPUT = frozenset({"all_to_all", "alltoall", "alltoall_base", "all_to_all_base", "scatter"})
_FREE_OUTPUT = frozenset({"all_to_all", "alltoall", "alltoall_base", "all_to_all_base", "gather"})
_ROOTED = frozenset({"scatter", "gather"})


def comparable(signature: Signature) -> tuple[object, ...]:
    """Of a signature, what all ranks of a collective have in common."""
    name = signature.name
    kind = name.rpartition(":")[2].partition(" ")[0]
    inputs: object = signature.input_sizes
    outputs: object = signature.output_sizes
    if kind in _FREE_INPUT or kind in _ROOTED:
        inputs = None
    if kind in _FREE_OUTPUT or kind in _ROOTED:
        outputs = None
    types = None if kind in _ROOTED else (signature.input_dtypes, signature.output_dtypes)
    return (name, inputs, outputs, types)


def minority(call: Call) -> tuple[int, ...]:
    """The ranks that called something else than most; all ranks where no call has a majority."""
    if call.others is None:
        return ()
    forms = {rank: comparable(call.signature_on(rank)) for rank in call.ranks}
    counts = Counter(forms.values())
    if len(counts) == 1:
        return ()
    (usual, n_usual), (_, n_second) = counts.most_common(2)
    if n_usual == n_second:
        return tuple(sorted(forms))
    return tuple(sorted(rank for rank, form in forms.items() if form != usual))


# -- from the calls of all ranks to a verdict: who holds the job up --------------------------------


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
        # what the first says of a rank counts
        because = {rank: _BECAUSE[one.kind] for one in reversed(stuck) for rank in one.culprits}
    elif ended is not None:
        last, why = ended
        kind, because = last.kind, dict.fromkeys(last.culprits, _BECAUSE[VerdictKind.NO_RECORD])
        reasons, stuck = (*why, *reasons), (last, *stuck)
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
    node_of = {rank: record.node for rank, record in folder.records.items()} | dict(nodes or {})
    return FlightVerdict(
        verdict=kind,
        culprits=tuple(Culprit(rank, node_of.get(rank), because[rank]) for rank in sorted(because)),
        stuck=stuck[:_MOST_LISTED],
        late=tuple(replace(one, node=node_of.get(one.rank)) for one in late[:_MOST_LISTED]),
        world_size=world_size,
        records=len(folder.records),
        without_record=evidence.absent_from_job,
        reasons=reasons,
        superseded=folder.superseded,
        refused=len(folder.refused),
        unreadable_entries=sum(one.unreadable_entries for one in folder.records.values())
        + folder.table.entries_left_out,
    )


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
    unknown = sum(
        one.members is None and one.description != DEFAULT_DESCRIPTION for one in evidence.groups
    )
    if unknown:
        limits.append(
            f"members of {unknown} groups are not recorded: a member that never called is unknown"
        )
    return tuple(limits)


# calls that end on a rank only after every member has made them
_NEED_ALL = (
    *("all_reduce", "allreduce", "barrier", "all_gather", "allgather", "reduce_scatter"),
    *("all_to_all", "alltoall"),
)
_FAILURE = "failure"


def after_the_end(evidence: FlightEvidence) -> tuple[StuckCollective, tuple[str, ...]] | None:
    """The last call that was given up, and why no more is known; None where nothing shows one."""
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
    kind = call.signature.name.rpartition(":")[2].lstrip("_")
    return bool(later) and kind.startswith(_NEED_ALL)


def _ending(
    evidence: FlightEvidence,
    group: GroupCalls,
    seq: int,
    call: Call,
    behind: tuple[int, ...],
    absent: tuple[int, ...],
) -> tuple[StuckCollective, tuple[str, ...]]:
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
    if known:
        return stuck, ()
    when = f"its timeout of {timeout_s:g} s" if timed_out else "it was given up"
    return stuck, (
        f"the records were written after {when}: {stuck.name} {stuck.seq} of group {stuck.group} "
        "waits on no rank any more, and what ranks did since then shows no cause. Records must be "
        "written while it hangs",
    )


# clocks of nodes agree to milliseconds; shorter waits are every job's
LATE_S = 1.0


def late_ranks(evidence: FlightEvidence) -> list[LateRank]:
    """Ranks that were last by a second or more, those that cost the most time first.

    The first call of a group is left out: ranks do not start up together.
    """
    lags: dict[int, list[tuple[float, str, int, bool]]] = {}
    for group in evidence.groups:
        members = len(evidence.members(group))
        first = min(group.calls, default=0)
        for seq, call in group.in_order():
            if len(call.ranks) == members and call.lag_s >= LATE_S and seq != first:
                timed_out = bool(call.timeout_ms) and call.lag_s >= call.timeout_ms / 1e3
                lags.setdefault(call.last_rank, []).append((call.lag_s, group.name, seq, timed_out))
    ranked = sorted(lags.items(), key=lambda item: -sum(lag_s for lag_s, *_ in item[1]))
    found = []
    for rank, of_rank in ranked:
        longest_s, name, seq, _ = max(of_rank, key=lambda lag: lag[0])
        after_timeout = any(timed_out for *_, timed_out in of_rank)
        found.append(LateRank(rank, None, len(of_rank), longest_s, name, seq, after_timeout))
    return found
