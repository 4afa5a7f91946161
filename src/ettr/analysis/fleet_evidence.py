"""What a fleet has shown: failures and node-days by node, of all its jobs or some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from ettr.analysis.analysis import Analysis
from ettr.analysis.clustering import FLEET, FailuresOfSize, clustering_of_all
from ettr.analysis.node_faults import fault_counts, faults_of
from ettr.analysis.without_jobs import gpus_of_a_node, recorded_hours, recorded_restarts
from ettr.errors import UsageError
from ettr.estimates.exact import FailureRate
from ettr.estimates.spread import FleetSpread, Spread
from ettr.facts import Facts
from ettr.facts.chosen import facts_of_jobs
from ettr.metrics.availability import clusters_of
from ettr.metrics.instants import Floats
from ettr.metrics.rates import (
    GPU,
    WITH_GPUS,
    FailuresByConfidence,
    facts_of_class,
    failures_by_confidence,
)
from ettr.metrics.runs import FleetChecks, fleet_checks
from ettr.models.compare import PairedCounts
from ettr.models.data import Counts, Labels
from ettr.selection import Selection
from ettr.units import HOURS_PER_DAY

FAULTS = "faults of nodes in service, whether or not a job ran"
RESTARTS = "restarts within recorded runs, whatever their cause"


@dataclass(frozen=True, slots=True)
class FleetEvidence:
    """Failures and exposure of one fleet, or of a part or a period of it."""

    name: str
    counts: Counts
    by_symptom: dict[str, int]
    jobs: str
    largest_n_nodes: int | None = None
    smallest_n_nodes: int | None = None
    gpus_per_node: float | None = None
    span_days: float | None = None
    spread: FleetSpread | None = None
    by_confidence: FailuresByConfidence | None = None
    spread_by_symptom: Mapping[str, FleetSpread] = field(default_factory=dict)
    placed: Mapping[str, float] | None = None
    checks: FleetChecks | None = None

    @property
    def spreads(self) -> tuple[Spread, ...]:
        """The spread on each axis on which it was measured."""
        return () if self.spread is None else self.spread.axes

    def spreads_of(self, symptom: str) -> tuple[Spread, ...]:
        """The same of the failures of one symptom."""
        own = self.spread_by_symptom.get(symptom)
        return () if own is None else own.axes

    @property
    def rate(self) -> FailureRate:
        """Failures over node-days."""
        return self.counts.rate


def typed_evidence(
    name: str,
    failures: int,
    node_days: float,
    n_nodes: int | None = None,
    gpus_per_node: float | None = None,
) -> FleetEvidence:
    """A fleet known by two numbers; `n_nodes` is the size of the jobs behind them.

    Raises:
        UsageError: no exposure, or a negative count.
    """
    if failures < 0 or not node_days > 0:
        raise UsageError(
            f"{name}: {failures} failures in {node_days:g} node-days; give 0 or more failures and "
            "more than 0 node-days"
        )
    counts = Counts([failures], [node_days], unit=FLEET)
    days = node_days / n_nodes if n_nodes else None
    return FleetEvidence(name, counts, {}, "as typed", n_nodes, n_nodes, gpus_per_node, days)


def fleet_evidence(
    analysis: Analysis,
    name: str,
    *,
    partition: tuple[str, ...] = (),
    cluster: tuple[str, ...] = (),
    others: bool = False,
    above_gpus: int | None = None,
) -> FleetEvidence:
    """What the store shows of some of its jobs.

    Args:
        above_gpus: jobs of more GPUs only; None takes them all.

    Raises:
        UsageError: no such job has run.
    """
    analysis = analysis.covered
    of_some = bool(partition or cluster)
    chosen, of_nodes = _rated(
        analysis,
        lambda facts: facts_of_jobs(facts, partition, cluster, others, above_gpus),
        of_some=of_some,
    )
    whole = None if of_some else _of_all_partitions(analysis, above_gpus)
    shown = whole or clustering_of_all(chosen, analysis.period, analysis.assumptions.confidence)
    if shown.counts is None:
        raise UsageError(_nothing(analysis, name, above_gpus))
    found = _evidence(analysis, name, shown.counts, chosen, above_gpus)
    if not of_some and analysis.selected is None:  # checks have no partition, node or time
        checks = fleet_checks(analysis.facts, name, analysis.assumptions.confidence)
        found = replace(found, checks=checks)
    if of_nodes:
        found = replace(found, jobs=f"{found.jobs} on {of_nodes}")
    return replace(found, spread=shown.spread, spread_by_symptom=shown.spread_by_symptom)


def _rated(
    analysis: Analysis, jobs_of: Callable[[Facts], Facts], *, of_some: bool
) -> tuple[Facts, str]:
    """The facts of the jobs whose rate is asked, and in words on which nodes; empty for all.

    Partitions are of all types of GPU, which may be what they differ by; one may have none.
    """
    if not (analysis.rate_nodes and of_some):
        return jobs_of(analysis.rate_facts), analysis.rate_nodes
    with_gpus = jobs_of(facts_of_class(analysis.facts, GPU))
    if with_gpus.rows("exposure_shapes"):
        return with_gpus, WITH_GPUS
    return jobs_of(analysis.facts), ""


def _of_all_partitions(analysis: Analysis, above_gpus: int | None) -> FailuresOfSize | None:
    """What the analysis knows already of all jobs, or of the large ones."""
    if above_gpus is None:
        return analysis.clustering_of_all
    return analysis.clustering.large if above_gpus == analysis.assumptions.above_gpus else None


def evidence_to_plan_with(analysis: Analysis, name: str) -> FleetEvidence:
    """The large jobs of a store where any ran, else all of its jobs.

    Where the logs hold no jobs, it is what they show of nodes or runs without them.

    Raises:
        UsageError: the store shows neither failures nor an exposure.

    Source:
        Kokolis et al. (2025): r_f over jobs of more than 128 GPUs.
    """
    if not analysis.logs_read.jobs:
        return evidence_without_jobs(analysis, name)
    return fleet_evidence(analysis, name, above_gpus=planned_above_gpus(analysis))


def why_nothing_to_plan_with(analysis: Analysis) -> str:
    """Why `evidence_to_plan_with` refuses, in its own words; empty where it does not."""
    try:
        evidence_to_plan_with(analysis, "these logs")
    except UsageError as error:
        return str(error)
    return ""


def evidence_without_jobs(analysis: Analysis, name: str) -> FleetEvidence:
    """Faults of the nodes of a store without jobs, or restarts of its recorded runs.

    Raises:
        UsageError: neither is recorded, or not on how many nodes.
    """
    logs = analysis.logs_read
    by_restarts = logs.progress and not (logs.errors or logs.node_states)
    counts = _restart_counts(analysis, name) if by_restarts else fault_counts(analysis.given, name)
    kinds = () if by_restarts else faults_of(analysis.facts, analysis.given)[0].category.tolist()
    rates = None if by_restarts else analysis.faults
    return FleetEvidence(
        name=name,
        counts=counts,
        by_symptom=dict(Counter(kinds)),
        jobs=RESTARTS if by_restarts else FAULTS,
        gpus_per_node=gpus_of_a_node(analysis.assumptions.gpus_per_node, analysis.fleet),
        span_days=analysis.period.days,
        spread=None if rates is None else rates.clustering,
    )


def planned_above_gpus(analysis: Analysis) -> int | None:
    """The size above which jobs count in what a run is planned with; None counts all."""
    large = analysis.rates.large_jobs.node_days > 0
    return analysis.assumptions.above_gpus if large else None


def periods(
    analysis: Analysis,
    name: str,
    before: datetime,
    after: datetime,
    *,
    above_gpus: int | None = None,
) -> list[FleetEvidence]:
    """What the store shows from one moment on, and before another.

    The later one comes first: the ratio then says what the change did.

    Raises:
        UsageError: the periods overlap, a moment has no zone, or nothing ran on one side.
    """
    if before > after:
        raise UsageError(
            f"before {before.isoformat()} and after {after.isoformat()} overlap; give a moment for "
            "--before that is no later than that for --after"
        )
    if not analysis.logs_read.jobs:
        raise UsageError(
            f"{name}: its logs hold no jobs, and compare counts failures of jobs; for a log of "
            "faults give the counts before and after, as in before=30/5000 after=12/6000"
        )

    covered = analysis.logs_covered
    if covered and (
        (covered.since and covered.since >= before) or (covered.until and covered.until <= after)
    ):
        raise UsageError(
            f"{name}: {covered.bounds}, and before {before:%Y-%m-%d %H:%M} is not comparable with "
            f"after {after:%Y-%m-%d %H:%M}; choose moments within that time"
        )

    def one(when: str, chosen: Selection) -> FleetEvidence:
        evidence = period_evidence(analysis.of(chosen).covered, when, analysis, above_gpus)
        if evidence is None:
            raise UsageError(f"{name} {when}: no job ran; choose a moment within the logs")
        return evidence

    early = one(f"before {before:%Y-%m-%d %H:%M}", replace(analysis.selection, until=before))
    late = one(f"after {after:%Y-%m-%d %H:%M}", replace(analysis.selection, since=after))
    return [late, early]


def period_evidence(
    part: Analysis, name: str, whole: Analysis, above_gpus: int | None = None
) -> FleetEvidence | None:
    """What one period shows, with its failures by node; None where nothing ran in it.

    Args:
        whole: of a time that holds it: which nodes are to blame for failures without a culprit is
            known better from more of the logs, and from the same ones for both of two periods.
    """
    chosen = facts_of_jobs(part.rate_facts, above_gpus=above_gpus)
    shown = _of_all_partitions(part, above_gpus) or clustering_of_all(
        chosen, part.period, part.assumptions.confidence
    )
    if shown.counts is None:
        return None
    evidence = _evidence(part, name, shown.counts, chosen, above_gpus)
    on = f" on {part.rate_nodes}" if part.rate_nodes else ""
    return replace(
        evidence,
        jobs=f"{evidence.jobs}{on}",
        spread=shown.spread,
        spread_by_symptom=shown.spread_by_symptom,
        placed=_placed(whole, chosen, shown.counts),
    )


def _placed(whole: Analysis, chosen: Facts, counts: Counts) -> dict[str, float] | None:
    """These failures by the names that the counts have for nodes."""
    from ettr.analysis.lemon_nodes import placed

    if counts.group is None:
        return None
    known = set(counts.group.tolist())
    parts = placed(whole.blame, set(chosen.columns("failures")["attempt_id"].tolist()))
    # clusters are named where there are several
    named = {
        f"{cluster}/{node}" if f"{cluster}/{node}" in known else node: part
        for (cluster, node), part in parts.items()
    }
    return {name: part for name, part in named.items() if name in known}


def same_nodes(early: FleetEvidence, late: FleetEvidence) -> PairedCounts | None:
    """Failures and exposure of each node in two periods; None where nodes are not named."""
    if early.counts.group is None or late.counts.group is None:
        return None
    names = np.unique(np.concatenate([early.counts.group, late.counts.group]))

    def by_name(one: FleetEvidence, group: Labels) -> tuple[Floats, Floats]:
        failures, node_days = np.zeros(names.size), np.zeros(names.size)
        place = np.searchsorted(names, group)
        node_days[place] = one.counts.exposure_node_days
        if one.placed is None:
            failures[place] = one.counts.failures
        else:
            failures[place] = [one.placed.get(name, 0.0) for name in group.tolist()]
        return failures, node_days

    a, b = by_name(early, early.counts.group), by_name(late, late.counts.group)
    unplaced = (early.counts.total - a[0].sum(), late.counts.total - b[0].sum())
    return PairedCounts(*a, *b, *map(float, unplaced))


def names_of(analysis: Analysis, column: str) -> tuple[str, ...]:
    """The partitions or clusters of the store's jobs."""
    if column == "cluster":
        return tuple(sorted(clusters_of(analysis.facts, "attempts")))
    named = analysis.facts.distinct("attempts", "partition")
    return tuple(sorted(name for (name,) in named if name is not None))


def _nothing(analysis: Analysis, name: str, above_gpus: int | None) -> str:
    size = "" if above_gpus is None else f" of more than {above_gpus} GPUs"
    if not analysis.logs_read.jobs:
        clusters = ", ".join(analysis.logs_clusters)
        of = f" (its logs are of {clusters})" if clusters else ""
        return (
            f"{name}: the store holds no job accounting, so there is no exposure of jobs{of}; add "
            "the accounting, or type its failures over node-days, such as new=12/6000"
        )
    partitions = ", ".join(names_of(analysis, "partition")) or "none"
    clusters = ", ".join(names_of(analysis, "cluster")) or "none"
    return (
        f"{name}: no job{size} has run, so there is no exposure; the store's clusters are "
        f"{clusters}, its partitions {partitions}"
    )


def _evidence(
    analysis: Analysis,
    name: str,
    counts: Counts,
    chosen: Facts,
    above_gpus: int | None,
) -> FleetEvidence:
    symptoms = Counter(chosen.columns("failures")["symptom"].tolist())
    basis = chosen.row("exposure_basis")
    return FleetEvidence(
        name=name,
        counts=counts,
        by_symptom=dict(symptoms),
        jobs="all jobs" if above_gpus is None else f"jobs of more than {above_gpus} GPUs",
        largest_n_nodes=basis["most_nodes"],
        smallest_n_nodes=basis["least_nodes"],
        gpus_per_node=analysis.gpus_per_node,
        span_days=analysis.period.days,
        by_confidence=failures_by_confidence(chosen),
    )


def _restart_counts(analysis: Analysis, name: str) -> Counts:
    n_nodes = analysis.assumptions.n_nodes
    if n_nodes is None:
        raise UsageError(
            f"{name}: progress records do not say on how many nodes the runs were; say so with "
            "--fleet-nodes N"
        )
    rate = FailureRate(
        recorded_restarts(analysis.facts),
        recorded_hours(analysis.facts, analysis.assumptions.run_rule) * n_nodes / HOURS_PER_DAY,
    )
    if not rate.node_days > 0:
        raise UsageError(f"{name}: the progress records span no time, so there is no exposure")
    return Counts([rate.failures], [rate.node_days], unit=FLEET)


# -- one store cut into fleets to compare: by partition, by cluster, or at a moment ----------------


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
