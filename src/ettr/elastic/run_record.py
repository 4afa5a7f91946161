"""What a run did, for its progress recorder and for the timings from which the planner chooses."""

from __future__ import annotations

import time

from ettr.elastic.membership.rendezvous import Membership
from ettr.elastic.restore.rank_inventory import RecoveryReport
from ettr.progress.recorder import ProgressRecorder
from ettr.recovery.restore_costs import Measuring


class RunRecord:
    """Records the events of one process."""

    def __init__(self, recorder: ProgressRecorder | None, timings: Measuring) -> None:
        self._recorder, self._timings = recorder, timings

    def updated(
        self, step: int, step_s: float, save_s: float, *, scheme: str, **where: int
    ) -> None:
        """An update was made and copied."""
        self._add("save", step, save_s, scheme=scheme)
        self._add("step", step, step_s, **where)

    def recovered(
        self,
        membership: Membership,
        report: RecoveryReport,
        *,
        begin_s: float,
        failed_s: float | None,
        **where: int,
    ) -> None:
        """A generation has its state."""
        if report.source in ("start", "resume"):
            self._add("start", report.step, None, **where)
            return
        reached = max(report.reached_step, 0)
        if membership.hung_s:
            self._add("stall", reached, membership.hung_s, time_s=failed_s, cause="rank")
        self._add(
            "restart",
            reached,
            None if failed_s is None else max(0.0, begin_s - failed_s),
            time_s=begin_s,
            **where,
            lost_slots=list(report.lost_slots),
            cause=membership.cause,
        )
        self._add(
            "restore",
            report.step,
            time.time() - begin_s,
            source=report.source,
            lost_steps=report.lost_steps,
            stale_steps=report.stale_steps,
            reason=report.decision.reason if report.decision else None,
        )

    def _add(
        self,
        event: str,
        step: int,
        duration_s: float | None,
        *,
        time_s: float | None = None,
        **detail: object,
    ) -> None:
        self._timings.add(event, duration_s)
        if self._recorder is not None:
            self._recorder.record(event, step, duration_s, time_s=time_s, **detail)
