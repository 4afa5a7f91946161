"""One store cut into fleets to compare: by partition, by cluster, or at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ettr.analysis.analysis import Analysis
from ettr.analysis.fleet_evidence import FleetEvidence, fleet_evidence, names_of, periods
from ettr.errors import UsageError
from ettr.metrics.node_classes import GPU

COLUMNS = ("partition", "cluster")


def common_above_gpus(analyses: Sequence[Analysis], above_gpus: int) -> int | None:
    """The size above which jobs are compared, where every store ran any; None compares all jobs."""
    every = all(analysis.rates.large_jobs.node_days > 0 for analysis in analyses)
    return above_gpus if every else None


def parts(
    analysis: Analysis, column: str, names: Sequence[str], above_gpus: int | None
) -> list[FleetEvidence]:
    """The jobs of each partition or cluster; of a single one, also the jobs of all others.

    Raises:
        UsageError: a name that the store does not know, or a part in which no job ran.
    """
    known = names_of(analysis, column)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(
            f"--{column} {unknown[0]}: no job ran there; the store knows "
            f"{', '.join(known) or 'none'}"
        )

    def part(chosen: tuple[str, ...], name: str, others: bool = False) -> FleetEvidence:
        return fleet_evidence(
            analysis,
            name,
            partition=chosen if column == "partition" else (),
            cluster=chosen if column == "cluster" else (),
            others=others,
            above_gpus=above_gpus,
        )

    found = [part((name,), name) for name in names]
    return found if len(found) > 1 else [*found, part(tuple(names), "all others", others=True)]


def types_of_gpu(analysis: Analysis, above_gpus: int | None) -> list[FleetEvidence]:
    """What ran on each type of GPU, that of most node-days first.

    Args:
        above_gpus: jobs of more GPUs only, where such ran on each type; None takes them all.

    Raises:
        UsageError: fewer than two types are known on which jobs ran.
    """
    names = [one.name for one in analysis.classes if one.has_gpus and one.name != GPU]
    if len(names) < 2:
        raise UsageError(
            "--by gpu-type: jobs ran on nodes of fewer than two types of GPU, as far as "
            "AllocTRES, partitions and an inventory say; ingest the output of `scontrol show node`"
        )
    by_type = {name: analysis.of(replace(analysis.selection, gpu_type=(name,))) for name in names}
    if above_gpus is not None:
        above_gpus = common_above_gpus([*by_type.values()], above_gpus)
    return [fleet_evidence(part, name, above_gpus=above_gpus) for name, part in by_type.items()]


def later_and_earlier(
    analysis: Analysis, before: datetime, after: datetime, above_gpus: int | None
) -> list[FleetEvidence]:
    """The time from one moment on, and the time before another.

    The later one comes first: the ratio then says what the change did.

    Raises:
        UsageError: the two overlap, or nothing ran on one side.
    """
    early, late = periods(analysis, "the fleet", before, after, above_gpus=above_gpus)
    return [late, early]
