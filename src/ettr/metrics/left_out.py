"""What a dump of the accounting was made without: attempts before a requeue, jobs of other states.

`sacct` lists the last attempt of a job alone unless it is given `--duplicates`, and only jobs of
some states where it is given `--state`. Such a dump looks like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from ettr.facts import Facts
from ettr.metrics.status import StatusMix
from ettr.words import counted

# sources that hold earlier attempts of a job where the site asked for them
ASKED_FOR = frozenset({"slurm-sacct", "slurm-sacct-json"})
_UNSUCCESSFUL = frozenset(
    {"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "PREEMPTED", "BOOT_FAIL"}
)
# a run that only ever fails has dozens of attempts; no cluster has thousands of jobs and no failure
LEAST_UNSUCCESSFUL = 100
LEAST_SUCCESSFUL = 1_000
LEAST_JOBS = 1_000
LEAST_UNSEEN = 5
_FEW_ROWS, _ALL_ROWS = 100_000, 1 << 62


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What seems to be missing from a dump; all zero and False where nothing does.

    Attributes:
        unseen_attempts: Earlier attempts that jobs count as restarts and the logs lack, where they
            are most of those; 0 where they are not.
        never_requeued: No job has a second attempt, which is what a dump looks like that lacks
            them.
    """

    ended: int
    none_completed: bool
    none_failed: bool
    unseen_attempts: int
    never_requeued: bool

    @property
    def certain(self) -> tuple[str, ...]:
        """What makes every rate doubtful, a sentence each."""
        if not self.none_completed:
            return self.too_few_failures
        return (
            f"None of the {self.ended:,} attempts that ended is COMPLETED. If the dump was "
            "selected by state (`sacct --state`), the runtime of all others is missing, and every "
            "rate and share is too high: dump all states and ingest again.",
            *self.too_few_failures,
        )

    @property
    def too_few_failures(self) -> tuple[str, ...]:
        """What makes rates too low, a sentence each."""
        sentences = []
        if self.none_failed:
            sentences.append(
                f"All of the {self.ended:,} attempts that ended are COMPLETED. If the dump was "
                "selected by state (`sacct --state`), failures are missing, and every rate is too "
                "low: dump all states and ingest again."
            )
        if self.unseen_attempts:
            sentences.append(
                f"By their counts of restarts jobs had {counted(self.unseen_attempts, 'attempt')} "
                "more than the logs hold: what a node failure, a preemption or a requeue ended is "
                "missing, and failures are too few. Dump with `sacct --duplicates` (-D) and ingest "
                "again."
            )
        return tuple(sentences)

    @property
    def doubtful(self) -> str | None:
        """What the dump may lack, where that cannot be known; None: nothing."""
        if not self.never_requeued:
            return None
        return (
            "No job has a second attempt. Either jobs are never requeued here, or the dump lacks "
            "`sacct --duplicates` (-D), and with it the attempts that a node failure or a "
            "preemption ended."
        )


def left_out(facts: Facts, status: StatusMix) -> LeftOut:
    """What a dump of the accounting seems to have been made without.

    Args:
        facts: of a whole store: a selection of jobs looks like a part of a dump.
    """
    by_state = {one.state: one.attempts for one in status.states}
    completed = by_state.get("COMPLETED", 0)
    unsuccessful = sum(by_state.get(state, 0) for state in _UNSUCCESSFUL)
    restarts = facts.row("unseen_attempts")
    unseen = restarts["unseen"] or 0
    is_most = unseen >= LEAST_UNSEEN and 2 * unseen > restarts["restarts"]
    return LeftOut(
        ended=completed + unsuccessful,
        none_completed=not completed and unsuccessful >= LEAST_UNSUCCESSFUL,
        none_failed=not unsuccessful and completed >= LEAST_SUCCESSFUL,
        unseen_attempts=unseen if is_most else 0,
        never_requeued=(
            not restarts["known"]
            and not ASKED_FOR.isdisjoint(row["source"] for row in facts.rows("files"))
            and sum(by_state.values()) >= LEAST_JOBS
            and _each_once(facts)
        ),
    )


def _each_once(facts: Facts) -> bool:
    """Whether no job has two attempts; where jobs do, one mostly shows among a few rows already."""
    found = (facts.under(first_rows=n).row("repeated_jobs") for n in (_FEW_ROWS, _ALL_ROWS))
    return all(row["n"] == row["jobs"] for row in found)
