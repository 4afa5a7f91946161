"""What a ranking of checkpoint schemes takes for granted, in sentences for its reader."""

from collections.abc import Iterator, Sequence

from ettr.plan.ranking import SchemeChoice
from ettr.plan.run import spell
from ettr.plan.schemes import JobShape

_WHO_WAITS = (
    "For the schemes --queue counts where the job goes back to the scheduler or stands still until "
    "it has another node: not where it keeps its nodes or has a standby one, and in part where the "
    "others train on."
)


def scheme_notes(
    job: JobShape,
    schemes: Sequence[SchemeChoice],
    *,
    blamed_share: float | None,
    shares_given: bool,
) -> tuple[str, ...]:
    """Assumptions behind a ranking, a sentence each.

    Args:
        job: That was ranked for.
        schemes: As ranked.
        blamed_share: Share of the failures blamed on one node; None where not known.
        shares_given: Whether the share of failures by what they take down was given.
    """
    return tuple(_notes(job, schemes, blamed_share, shares_given))


def _notes(
    job: JobShape, schemes: Sequence[SchemeChoice], blamed_share: float | None, shares_given: bool
) -> Iterator[str]:
    yield (
        f"For the schemes a node sends {job.network_bytes_per_s / 1e9:g} GB/s to its peers, copies "
        f"{job.device_bytes_per_s / 1e9:g} GB/s to its memory and has {job.host_bytes / 1e9:g} GB "
        "of it for checkpoints (--network, --device, --host-memory)."
    )
    if job.queue_s:
        yield _WHO_WAITS
    yield from _durable_periods(job, schemes)
    if shares_given:
        return
    yield (
        "Every failure is assumed to take down one node (--failure-shares changes that)."
        if blamed_share is None
        else f"{100 * blamed_share:.0f} % of failures blame a node; the others are assumed to take "
        "down the whole job (--failure-shares changes that)."
    )


def _durable_periods(job: JobShape, schemes: Sequence[SchemeChoice]) -> Iterator[str]:
    """What --durable-every became for schemes with two levels, where it is not as asked."""
    names: dict[str, list[str]] = {}
    asked = spell(job.durable_period_s)
    for one in schemes:
        if one.durable_every_s is not None:
            names.setdefault(spell(one.durable_every_s), []).append(one.name)
    became = [f"{at} ({', '.join(those)})" for at, those in names.items() if at != asked]
    if became:
        why = (
            f"a durable checkpoint takes {spell(job.write_alone_s)} to write"
            if job.write_alone_s > job.durable_period_s
            else "the whole number of checkpoint intervals that is nearest to it"
        )
        yield f"--durable-every {asked} becomes {'; '.join(became)}: {why}."
