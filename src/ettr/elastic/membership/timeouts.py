"""How long a rank waits for its peers. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ettr.errors import UsageError


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; each must exceed the one before it, so that a waiting rank never gives up first.

    Attributes:
        collective_s: A collective without an answer fails after this time (a hang that no
            heartbeat shows).
        regroup_s: A rank whose collective failed waits this long for the supervisor to notice why.
        rendezvous_s: The ranks of a new generation wait this long for each other; a replacement
            that is not warm imports torch in the meantime.
    """

    collective_s: float = 60.0
    regroup_s: float = 90.0
    rendezvous_s: float = 300.0

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            UsageError: they do not ascend.
        """
        if not 0 < self.collective_s < self.regroup_s < self.rendezvous_s:
            raise UsageError(
                f"timeouts of {self.collective_s} s for a collective, {self.regroup_s} s to "
                f"regroup, {self.rendezvous_s} s to meet: give them ascending, above 0"
            )
