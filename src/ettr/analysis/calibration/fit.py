"""`ettr simulate fit`: a scenario from a site's own history."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from ettr.analysis.calibration.fit_faults import fit_faults
from ettr.analysis.calibration.fit_jobs import fit_jobs
from ettr.analysis.calibration.record import Fitted, Machine, ScenarioMaker, SiteRecord, site_record
from ettr.errors import UsageError
from ettr.metrics.instants import to_seconds
from ettr.selection import Selection
from ettr.sim.cluster.scenario import MOST_GPUS_PER_NODE, ClusterScenario
from ettr.sim.cluster.scenario_file import scenario_of, scenario_text, text_of
from ettr.units import SECONDS_PER_DAY
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis

BASE = "rsc-1-like"
LEAST_DAYS = 3.0
LEAST_JOBS = 50


@dataclass(frozen=True, slots=True)
class SiteFit:
    """A scenario fitted to a site.

    Attributes:
        not_fitted: Values that the logs cannot bear: those of the base, or assumed without it.
    """

    scenario: ClusterScenario
    text: str
    store: str
    since: str
    until: str
    fitted: int
    values: int
    not_fitted: tuple[str, ...]
    notes: tuple[str, ...]


def fit_site(analysis: Analysis, name: str, until: datetime | None = None) -> SiteFit:
    """Fit a scenario to a store's logs.

    Args:
        name: Of the store; the scenario is called `NAME-fit`.
        until: End of the part that is fitted, at midnight UTC; all of the logs where None.

    Raises:
        UsageError: too little is left to fit.
    """
    record = site_record(analysis)
    begin, end = fitted_days(analysis, until)
    whole = begin <= analysis.logs_period.start
    part = analysis.of(Selection(since=None if whole else begin, until=end))
    simulated = analysis.selection_head.simulated
    origin = f"simulated {name}" if simulated else name
    maker = ScenarioMaker(scenario_of(scenario_text(BASE)[0]), origin)
    if simulated:
        maker.notes.append(f"{name} is not a real cluster. {simulated}")
    maker.notes.extend(_doubts(analysis))
    _machines(maker, analysis, record.machine)
    maker.notes.extend(_without_gpus(record))
    begin_s, end_s = to_seconds(begin), to_seconds(end)
    days = (end_s - begin_s) / SECONDS_PER_DAY
    maker.part(
        "period",
        start=Fitted(begin.date().isoformat(), "first day of the logs"),
        days=Fitted(days, "days of the logs"),
    )
    _fit_jobs(maker, record, begin_s, end_s)
    fit_faults(maker, part, record.machine, end_s)
    scenario = maker.scenario(f"{name}-fit")
    since, last = begin.date().isoformat(), end.date().isoformat()
    text = text_of(scenario, _head(maker, since, last))
    fitted = sum(one.startswith("fitted") for one in scenario.sources.values())
    return SiteFit(
        scenario,
        text,
        origin,
        since,
        last,
        fitted,
        len(scenario.sources),
        tuple(maker.not_fitted),
        tuple(maker.notes),
    )


def _doubts(analysis: Analysis) -> Iterator[str]:
    """What makes the logs another history than that of their period, a sentence each."""
    if _known_from(analysis) > analysis.logs_period.start:
        yield (
            "Fitted from the first whole day on of which the logs know more than what outlasted "
            "it (the report's data quality says what that is)."
        )
    if analysis.left_out is not None:
        yield from analysis.left_out.certain


def fitted_days(analysis: Analysis, until: datetime | None) -> tuple[datetime, datetime]:
    """Midnights between which a store is fitted.

    The first is that of the period; where the logs begin in the middle of jobs or outages, that
    after they do: what was over by then is missing.
    """
    period = analysis.logs_period
    begin = datetime.combine(period.start.astimezone(UTC).date(), datetime.min.time(), UTC)
    known_from = _known_from(analysis)
    if known_from > period.start:
        day = known_from.astimezone(UTC).date() + timedelta(days=1)
        begin = datetime.combine(day, datetime.min.time(), UTC)
    days = math.ceil((period.end - begin).total_seconds() / SECONDS_PER_DAY)
    last = begin + timedelta(days=days)
    if until is not None and until > last:
        raise UsageError(
            f"--until {until.date()}: the logs end on {period.end.astimezone(UTC).date()}; days "
            "after them would count as days without jobs and failures"
        )
    end = last if until is None else until
    left_days = max(0.0, (end - begin).total_seconds() / SECONDS_PER_DAY)
    if left_days < LEAST_DAYS:
        raise UsageError(
            f"{analysis.store.where}: {left_days:.1f} days are left to fit, as the logs can be "
            f"fitted from {begin.date()} to {last.date()} and the fit would end on {end.date()}; "
            f"give {LEAST_DAYS:g} days or more"
        )
    return begin, end


def _known_from(analysis: Analysis) -> datetime:
    ends = [one.first_end for one in analysis.dump_windows if one.first_end is not None]
    if analysis.early_start is not None:
        ends.append(analysis.early_start.known_from)
    return max([analysis.logs_period.start, *ends])


def _fit_jobs(maker: ScenarioMaker, record: SiteRecord, begin_s: float, end_s: float) -> None:
    attempts = record.attempts
    submitted = (attempts.submit_s >= begin_s) & (attempts.submit_s < end_s)
    n = int((attempts.is_first & submitted).sum())
    if record.has_jobs and n >= LEAST_JOBS:
        saves = record.save_interval_s(begin_s, end_s)
        fit_jobs(maker, attempts, record.machine, begin_s, end_s, saves)
        return
    if record.has_jobs:
        raise UsageError(
            f"{n} jobs were submitted in the part that is fitted; a fit takes {LEAST_JOBS} or more"
        )
    maker.part("arrivals", "no accounting", jobs_per_day=Fitted(0.0, "no jobs in the logs"))
    per_node = record.machine.per_node
    one = replace(maker.base.jobs[0], gpus=min(per_node, maker.base.jobs[0].gpus), share=1.0)
    maker.entries("jobs", [(one, {})])
    maker.entries("priorities", [(one_, {}) for one_ in maker.base.priorities])
    for group in ("outcomes", "users", "scheduling", "checkpoints"):
        maker.part(group, "no accounting")


def _machines(maker: ScenarioMaker, analysis: Analysis, machine: Machine) -> None:
    """Nodes, racks and pods; all nodes are alike in a scenario."""
    if machine.per_node > MOST_GPUS_PER_NODE:
        raise UsageError(
            f"nodes have {machine.per_node} {machine.unit}; a scenario has at most "
            f"{MOST_GPUS_PER_NODE}"
        )
    rows = analysis.facts.rows("nodes")
    rows = [row for row in rows if machine.has(row["cluster"], row["node"])]
    racks = Counter(row["rack"] for row in rows if row["rack"])
    pods = {(row["pod"], row["rack"]) for row in rows if row["pod"] and row["rack"]}
    alike = [row for row in rows if row["n_gpus"] in (machine.per_node, None)] or rows
    types = Counter(row["gpu_type"] for row in alike if row["gpu_type"])
    kinds = {(row["gpu_type"], row["n_gpus"]) for row in rows}
    if len(kinds) > 1:
        maker.notes.append(
            f"The nodes are of {len(kinds)} kinds; the scenario has only the most frequent one."
        )
    maker.notes.extend(_other_total(analysis, machine))
    if machine.unit != "GPUs":
        maker.notes.append(f"No job names GPUs, so {machine.unit} are counted instead.")
    n_pods = len({pod for pod, _ in pods})
    maker.part(
        "machines",
        nodes=Fitted(
            machine.n_nodes,
            "nodes with GPUs that the logs name" if machine.bare else "nodes that the logs name",
        ),
        gpus_per_node=Fitted(machine.per_node, f"most frequent; {machine.unit}"),
        nodes_per_rack=Fitted(float(np.median(list(racks.values()))), f"{len(racks)} racks")
        if racks
        else None,
        racks_per_pod=Fitted(max(1.0, len(pods) / n_pods), f"{n_pods} pods") if pods else None,
        gpu_type=Fitted(types.most_common(1)[0][0], "inventory") if types else None,
    )


def _without_gpus(record: SiteRecord) -> Iterator[str]:
    """What has no GPUs and is left out, where others have some."""
    if nodes := len(record.machine.bare):
        yield (
            f"{counted(nodes, 'node')} without GPUs {'is' if nodes == 1 else 'are'} left out, with "
            "the faults, the outages and the time in service there."
        )
    if jobs := record.bare_jobs:
        yield (
            f"{counted(jobs, 'job')} that {'asks' if jobs == 1 else 'ask'} for no GPUs "
            f"{'is' if jobs == 1 else 'are'} left out."
        )


def _other_total(analysis: Analysis, machine: Machine) -> Iterator[str]:
    """That nodes which are all alike have more or fewer GPUs together than those of the logs."""
    gpus_of = analysis.logs_fleet.gpus.items()
    known = [gpus for node, gpus in gpus_of if machine.has(*node) and not math.isnan(gpus)]
    unknown = machine.n_nodes - len(known)
    total = round(sum(known)) + unknown * machine.per_node
    made = machine.n_nodes * machine.per_node
    if machine.unit != "GPUs" or total == made:
        return
    yield (
        f"{machine.n_nodes:,} nodes of {machine.per_node} GPUs have {made:,}, and those of the "
        f"logs {total:,}: the scenario has {'more' if made > total else 'fewer'} GPUs than the "
        "cluster, so that its queue, its waits and its utilisation are those of another one, "
        "and a back-test takes the utilisation of both as a share of that number."
    )


def _head(maker: ScenarioMaker, since: str, until: str) -> list[str]:
    lines = [
        f"Fitted to {maker.origin}, {since} until {until}, by ettr simulate fit.",
        "low and high are the ends of 90 % intervals; a back-test draws each such value from its "
        "own.",
    ]
    return lines + [f"Not fitted: {one}" for one in maker.not_fitted] + maker.notes
