"""The calls of all ranks side by side: one table for each group, filled record by record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ettr.flight.entries import MOST_CALLS, Entry, Signature

COMPLETED = "completed"
# of this backend no state is known; a call retires when it has ended, well or not
STATELESS = "gloo:"
DEFAULT_GROUP = "default_pg"


class Call:
    """One collective of a group (or one step of sends and receives) on the ranks that called it."""

    __slots__ = (
        *("aborted", "first_ns", "last_ns", "last_rank", "open", "others", "ranks"),
        *("signature", "timeout_ms"),
    )

    def __init__(self, signature: Signature, created_ns: int) -> None:
        self.signature = signature
        self.ranks: list[int] = []
        # ranks whose signature differs from the first one's
        self.others: dict[int, Signature] | None = None
        # ranks on which it has not ended
        self.open: list[int] = []
        # ranks on which it was given up: retired, yet known not to be complete
        self.aborted: list[int] = []
        self.first_ns = self.last_ns = created_ns
        self.last_rank = -1
        self.timeout_ms = 0

    def signature_on(self, rank: int) -> Signature:
        """What the rank called."""
        return (self.others or {}).get(rank, self.signature)

    @property
    def lag_s(self) -> float:
        """From the first rank's call to the last one's."""
        return (self.last_ns - self.first_ns) / 1e9


@dataclass(slots=True)
class GroupCalls:
    """A process group: its calls by sequence number, and how far each rank has come."""

    name: str
    description: str
    # None: no record says who belongs to it
    members: tuple[int, ...] | None
    calls: dict[int, Call] = field(default_factory=dict)
    p2p: dict[int, Call] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    def in_order(self) -> Iterator[tuple[int, Call]]:
        """Collectives by sequence number."""
        return ((seq, self.calls[seq]) for seq in sorted(self.calls))


class CallTable:
    """The calls of all records that were added."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str, tuple[int, ...] | None], GroupCalls] = {}
        self._n_calls = 0
        self.entries_left_out = 0

    def groups(self) -> list[GroupCalls]:
        """The groups, by name; of the same name, those with known members take in the others."""
        for key, group in list(self._groups.items()):
            known = [
                one
                for one in self._groups.values()
                if one.name == group.name and one.members is not None
            ]
            if group.members is None and len(known) == 1:
                _merge(known[0], self._groups.pop(key))
        return sorted(self._groups.values(), key=lambda one: (one.name, one.members or ()))

    def add(
        self, rank: int, entries: list[Entry], members_of: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Add the calls of one rank."""
        mine: dict[tuple[str, str], GroupCalls] = {}
        for entry in entries:
            name, description, seq, is_p2p, signature, retired, state, created_ns, timeout, _ = (
                entry
            )
            group = mine.get((name, description))
            if group is None:
                group = self._group(name, description, members_of)
                mine[name, description] = group
            calls = group.p2p if is_p2p else group.calls
            call = calls.get(seq)
            if call is None:
                if self._n_calls >= MOST_CALLS:
                    self.entries_left_out += 1
                    continue
                self._n_calls += 1
                call = calls[seq] = Call(signature, created_ns)
            ended = state == COMPLETED or (retired and signature.name.startswith(STATELESS))
            if not ended or signature is not call.signature or rank in call.ranks[-1:]:
                _note(call, rank, entry, ended=ended)
            else:
                call.ranks.append(rank)
            if created_ns < call.first_ns:
                call.first_ns = created_ns
            elif created_ns >= call.last_ns:
                call.last_ns, call.last_rank = created_ns, rank
            if timeout and (timeout < call.timeout_ms or not call.timeout_ms):
                call.timeout_ms = timeout
            if not is_p2p and seq > group.newest.get(rank, -1):
                group.newest[rank] = seq

    def _group(
        self, name: str, description: str, members_of: Mapping[str, tuple[int, ...]]
    ) -> GroupCalls:
        members = members_of.get(name)
        key = (name, description, members)
        if key not in self._groups:
            self._groups[key] = GroupCalls(name, description, members)
        return self._groups[key]


def _note(call: Call, rank: int, entry: Entry, *, ended: bool) -> None:
    """Add a rank to a call where it is not as on the others, or not for the first time."""
    if call.ranks and call.ranks[-1] == rank:
        # of the entries of a coalesced call only the last has a state of its own
        if ended and call.open and call.open[-1] == rank:
            call.open.pop()
        return
    call.ranks.append(rank)
    if not ended:
        (call.aborted if entry.retired else call.open).append(rank)
    if entry.signature is not call.signature:
        if call.others is None:
            call.others = {}
        call.others[rank] = entry.signature


def _merge(known: GroupCalls, other: GroupCalls) -> None:
    """Take the calls of a group whose members are not known into the one of the same name."""
    for mine, theirs in ((known.calls, other.calls), (known.p2p, other.p2p)):
        for seq, call in theirs.items():
            kept = mine.setdefault(seq, call)
            if kept is call:
                continue
            kept.ranks += call.ranks
            kept.open += call.open
            kept.aborted += call.aborted
            differing = {
                rank: call.signature_on(rank)
                for rank in call.ranks
                if call.signature_on(rank) is not kept.signature
            }
            if differing:
                kept.others = {**(kept.others or {}), **differing}
            kept.first_ns = min(kept.first_ns, call.first_ns)
            if call.last_ns > kept.last_ns:
                kept.last_ns, kept.last_rank = call.last_ns, call.last_rank
    known.newest.update(other.newest)
