"""Types of what `ettr.Fleet` answers. Made by docs/generate.py (`make docs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ettr.analysis.causes import CauseSummary
    from ettr.analysis.comparing import PeriodTrend
    from ettr.analysis.failure_questions import FailureList
    from ettr.analysis.fleet import FleetModels
    from ettr.analysis.objectives import ObjectivesHeld
    from ettr.analysis.projecting import CheckpointAdvice
    from ettr.api.result import Result
    from ettr.lemons.candidates import LemonReport
    from ettr.metrics.availability import Availability
    from ettr.metrics.goodput import LostGoodput
    from ettr.metrics.mttf import MttfBySize
    from ettr.metrics.node_records import NodeRecords
    from ettr.metrics.quality import DataQuality
    from ettr.metrics.rates import RatesBySymptom
    from ettr.metrics.runs import JobRuns
    from ettr.metrics.sizes import SizeMix, UserFailures
    from ettr.metrics.status import StatusMix, Totals


class FleetAnswers:
    """The parts of the report; each is computed when it is first asked for."""

    totals: Result[Totals]
    """Jobs, attempts and hours of the selected attempts."""
    failures: Result[RatesBySymptom]
    """Failures per 1,000 node-days by symptom; `table("failures")` has each of them."""
    previous: Result[PeriodTrend | None]
    """The selected period, else the last 30 days, against the one before it."""
    failure_list: Result[FailureList]
    """Each failure: when, whose, where, why, its cost and its log lines."""
    causes: Result[CauseSummary | None]
    """Interruptions by cause, with probabilities; `table("causes")` has each of them."""
    mttf: Result[MttfBySize]
    """Time to failure by job size; from faults and progress alone where there are no jobs."""
    goodput: Result[LostGoodput]
    """GPU-hours lost, first and second order."""
    slo: Result[ObjectivesHeld]
    """Whether the objectives of the site hold, and which logs fell silent."""
    runs: Result[JobRuns]
    """Job runs and their ETTR."""
    models: Result[FleetModels]
    """Whether failures cluster, and which model fits."""
    planning: Result[CheckpointAdvice | None]
    """The best checkpoint interval for each size of run; None where none of known size was seen."""
    nodes: Result[Availability]
    """Node availability, repair times, capacity lost."""
    node_records: Result[NodeRecords]
    """Each node: exposure, failures against those expected, outages, last repair."""
    lemons: Result[LemonReport]
    """Nodes that may be lemons, with a probability each."""
    status: Result[StatusMix]
    """Attempts, GPU-hours and node-hours by state; states not ended yet stand as they are."""
    user_failures: Result[UserFailures]
    """Failures of the users' own making, by user, account, exit code and node."""
    sizes: Result[SizeMix]
    """Job sizes."""
    quality: Result[DataQuality]
    """How far the logs can be trusted."""
