"""Questions that a report asks of every store: each a function of the facts and of what it names.

`ettr.analysis.assumptions` says how they are given that. Others stand in modules of their own:
`failure_questions`, `loss_questions`, and of one model or one list `causes`, `projecting`, ...
"""

from __future__ import annotations

from typing import Annotated, Any

from ettr.analysis.analysis import Analysis
from ettr.analysis.assumptions import Assumptions
from ettr.attribution import job_history
from ettr.facts import Facts
from ettr.metrics.availability import LogsRead
from ettr.metrics.outages import IncidentLedger, incident_ledger, selected_incidents
from ettr.metrics.sizes import SizeMix, UserFailures, size_mix
from ettr.metrics.sizes import user_failures as failures_of_users
from ettr.tables import FAILURES


def logs(analysis: Analysis) -> LogsRead:
    """Which kinds of logs the store holds, of the selected clusters."""
    return analysis.logs_read


def assumptions(analysis: Analysis) -> Assumptions:
    """What the logs cannot say, as it was analysis or assumed."""
    return analysis.assumptions


def incidents(facts: Facts) -> IncidentLedger | None:
    """What incident ledgers state of the period, clusters and nodes; None where nothing."""
    return incident_ledger(selected_incidents(facts))


def failure_rows(facts: Facts) -> Annotated[list[dict[str, Any]], FAILURES]:
    """Each failure with its cause and the ids of its evidence, in order of time."""
    return job_history.failure_rows(facts)


def sizes(analysis: Analysis) -> SizeMix:
    """Job sizes."""
    return size_mix(analysis.facts, analysis.size_unit)


def user_failures(analysis: Analysis) -> UserFailures:
    """Failures of the users' own making, by user, account, exit code and node."""
    return failures_of_users(analysis.facts, several_clusters=len(analysis.clusters) > 1)
