"""Ranks that came late to collectives that all of them started."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ettr.flight.verdict import LateRank
from ettr.flight.waits import FlightEvidence

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
