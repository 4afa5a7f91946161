"""The planner page: one HTML file whose sliders move MTTF, ETTR, the optimum and the target line.

The arithmetic runs in the page, so that it works offline. What a checkpoint scheme states for a job
depends on nodes and restart time as c0 + c1 / nodes + c2 * restart; those numbers are taken from
the schemes themselves, so that a new scheme needs no line of JavaScript.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ettr import __version__
from ettr.plan.outlook import RunPlan
from ettr.plan.schemes import SCHEMES, Domain, JobShape, RecoveryLevel, Scheme, Terms
from ettr.report.jinja import environment, script_json

ASSUMED_TARGET = 0.9
TYPED = "typed write time"
_KINDS = {RecoveryLevel.SOFT: "soft", RecoveryLevel.LIGHT: "light", RecoveryLevel.DEEP: "deep"}


def planner_html(plan: RunPlan) -> str:
    """The page as HTML, its sliders at the plan's run."""
    job = plan.job or assumed_job(plan)
    return (
        environment()
        .get_template("planner.html.j2")
        .render(
            subtitle="Move a slider: MTTF, ETTR, the best interval and the target line follow.",
            notes=_notes(plan, job),
            footer=f"ettr {__version__}. Nothing is loaded from anywhere; the file can be kept.",
            given=script_json(given(plan, job)),
        )
    )


def assumed_job(plan: RunPlan) -> JobShape:
    """The job that schemes are shown for where none is given."""
    return JobShape(
        state_bytes=1e12,
        step_s=10.0,
        n_nodes=plan.run.n_nodes,
        storage_bytes_per_s=100e9,
        network_bytes_per_s=50e9,
        device_bytes_per_s=100e9,
        host_bytes=500e9,
        restart_s=plan.run.restart_s,
        queue_s=plan.run.queue_s,
        gpus_per_node=plan.gpus_per_node,
        replicas=2,
    )


def given(plan: RunPlan, job: JobShape) -> dict[str, Any]:
    """What the page starts from."""
    run, band = plan.run, plan.rate.per_node_day
    shares = plan.domain_shares or {"node": 1.0}
    known = band.low < band.high and math.isfinite(band.high) and band.low > 0
    return {
        "gpus_per_node": plan.gpus_per_node,
        "host_bytes": job.host_bytes,
        "band": {"low_per_1000": 1000 * band.low, "high_per_1000": 1000 * band.high}
        if known
        else None,
        "state": {
            "gpus": plan.n_gpus or run.n_nodes * plan.gpus_per_node,
            "per_1000": 1000 * run.failures_per_node_day,
            "interval_s": run.interval_s,
            "write_s": run.write_s,
            "restart_s": run.restart_s,
            "queue_s": run.queue_s,
            "target": plan.target or ASSUMED_TARGET,
            "best": plan.best_planned,
            "scheme": TYPED,
        },
        "schemes": [_scheme(scheme, job, shares) for scheme in SCHEMES],
    }


def _scheme(scheme: Scheme, job: JobShape, shares: dict[str, float]) -> dict[str, Any]:
    # steps so short that they do not show, memory that suffices: both are judged in the page
    free = replace(job, step_s=1e-12, host_bytes=1e30)

    def fitted(of: Callable[[Terms], float]) -> list[float]:
        return _affine(lambda n, u0: of(scheme.terms(replace(free, n_nodes=n, restart_s=u0))))

    terms = scheme.terms(free)
    tight = scheme.terms(replace(free, host_bytes=1e-9))
    responses = []
    for domain in Domain:
        response = terms.responses[domain]
        responses.append(
            {
                "share": shares.get(domain.key, 0.0),
                "kind": _KINDS[response.level],
                "restart": fitted(lambda t, d=domain: t.responses[d].restart_s),  # type: ignore[misc]
                # a step is repeated where one is, whatever its length
                "lost": _affine(
                    lambda n, u0, d=domain: (  # type: ignore[misc]
                        scheme.terms(replace(job, host_bytes=1e30, n_nodes=n, restart_s=u0))
                        .responses[d]
                        .lost_s
                    )
                ),
                "lost_interval_share": response.lost_interval_share,
            }
        )
    return {
        "name": scheme.name,
        "why": f"{scheme.source}. {scheme.assumptions}",
        "two_levels": terms.two_levels,
        "slowdown": terms.slowdown,
        "durable_period_s": job.durable_period_s,
        "persist_s": job.persist_s,
        "step_s": job.step_s,
        "stall": fitted(lambda t: t.stall_s),
        "lag": fitted(lambda t: t.lag_s),
        "shortest": fitted(lambda t: t.shortest_interval_s),
        "host_bytes": fitted(lambda t: t.host_bytes),
        "needs_memory": terms.obstacle is None and tight.obstacle is not None,
        "obstacle": terms.obstacle,
        "responses": responses,
    }


def _affine(of: Callable[[int, float], float]) -> list[float]:
    """c0, c1, c2 of c0 + c1 / nodes + c2 * restart."""
    one, two, later = of(1, 0.0), of(2, 0.0), of(1, 1000.0)
    per_node = 2.0 * (one - two)
    return [one - per_node, per_node, (later - one) / 1000.0]


def _notes(plan: RunPlan, job: JobShape) -> tuple[str, ...]:
    told = "" if plan.job else " (assumed; ettr plan --state-bytes and its companions take yours)"
    return (
        "The exact form counts failures during restart and catch-up; nodes are in series and fail "
        "at a constant rate. The run is taken to be long.",
        f"The schemes are for a state of {job.state_bytes / 1e12:.3g} TB, steps of {job.step_s:g} "
        f"s and {job.storage_bytes_per_s / 1e9:g} GB/s to durable storage{told}.",
        plan.rate.meaning,
        *plan.assumptions,
    )
