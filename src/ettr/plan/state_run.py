"""The plain run of a job whose state is known: how long a checkpoint takes follows from its size.

It is the run of the synchronous scheme, so that the head of a plan and that row of the schemes give
one answer.
"""

from dataclasses import replace

from ettr.plan.run import RunShape
from ettr.plan.schemes import Domain, JobShape, Synchronous
from ettr.words import significant, spell


def run_with_state(
    shape: RunShape, job: JobShape, *, write_typed: bool
) -> tuple[RunShape, tuple[str, ...]]:
    """The run with the write and the restart that its state takes, and sentences that say so."""
    terms = Synchronous().terms(job)
    restart_s = terms.responses[Domain.JOB].restart_s
    size = f"{_spelled_bytes(job.state_bytes)} at {_spelled_bytes(job.storage_bytes_per_s)}/s"
    notes = [
        f"The restart of {spell(restart_s)} is {spell(job.restart_s)} (--restart) and the load of "
        f"{size}."
    ]
    if not write_typed:
        notes.insert(
            0, f"--write not given: {spell(terms.stall_s)}, the copy and the write of {size}."
        )
        return replace(shape, write_s=terms.stall_s, restart_s=restart_s), tuple(notes)
    if abs(shape.write_s / terms.stall_s - 1.0) > 0.01:
        notes.insert(
            0,
            f"--write {spell(shape.write_s)} was given, but {size} takes {spell(terms.stall_s)}: "
            "the head uses the first, the schemes the second; leave --write out for one answer.",
        )
    return replace(shape, restart_s=restart_s), tuple(notes)


def _spelled_bytes(n_bytes: float) -> str:
    """A size in the unit that fits it: `800 GB`, `5.7 TB`."""
    for unit_bytes, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if n_bytes >= unit_bytes:
            value = n_bytes / unit_bytes
            return f"{significant(value)} {name}" if value < 1000 else f"{value:,.0f} {name}"
    return f"{significant(n_bytes)} B"
