"""Calls that have not ended, and whom they wait for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ettr.flight.folder import Call, GroupCalls, RankRecord
from ettr.flight.record import Signature

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
