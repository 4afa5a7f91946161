"""Questions that a report asks of every store: each a function of the facts and of what it names.

`ettr.analysis.assumptions` says how they are given that. Others stand in modules of their own:
`failure_questions`, `loss_questions`, and of one model or one list `causes`, `projecting`, ...
"""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from ettr.analysis.assumptions import Assumptions
from ettr.attribution import job_history
from ettr.facts import Facts
from ettr.metrics.availability import LogsRead
from ettr.metrics.outages import IncidentLedger, incident_ledger, selected_incidents
from ettr.metrics.sizes import SizeMix, SizeUnit, UserFailures, size_mix
from ettr.metrics.sizes import user_failures as failures_of_users
from ettr.tables import FAILURES


class OfLogs(Protocol):
    """What `logs` takes."""

    logs_read: LogsRead


def logs(_: Facts, given: OfLogs) -> LogsRead:
    """Which kinds of logs the store holds, of the selected clusters."""
    return given.logs_read


class OfAssumptions(Protocol):
    """What `assumptions` takes."""

    assumptions: Assumptions


def assumptions(_: Facts, given: OfAssumptions) -> Assumptions:
    """What the logs cannot say, as it was given or assumed."""
    return given.assumptions


def incidents(facts: Facts) -> IncidentLedger | None:
    """What incident ledgers state of the period, clusters and nodes; None where nothing."""
    return incident_ledger(selected_incidents(facts))


def failure_rows(facts: Facts) -> Annotated[list[dict[str, Any]], FAILURES]:
    """Each failure with its cause and the ids of its evidence, in order of time."""
    return job_history.failure_rows(facts)


class OfSizes(Protocol):
    """What `sizes` takes."""

    size_unit: SizeUnit


def sizes(facts: Facts, given: OfSizes) -> SizeMix:
    """Job sizes."""
    return size_mix(facts, given.size_unit)


class OfUserFailures(Protocol):
    """What `user_failures` takes."""

    clusters: tuple[str, ...]


def user_failures(facts: Facts, given: OfUserFailures) -> UserFailures:
    """Failures of the users' own making, by user, account, exit code and node."""
    return failures_of_users(facts, several_clusters=len(given.clusters) > 1)
