"""The planner page: one HTML file whose sliders move MTTF, ETTR, the optimum and the target line.

The arithmetic runs in the page, so that it works offline. What a checkpoint scheme states for a job
is a function of nodes and restart time with few numbers (`ettr.plan.schemes.base`), so that a new
scheme needs no line of JavaScript.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from ettr.plan.outlook import PER_NODE_DAYS, RunPlan
from ettr.plan.renewal import AROUND
from ettr.plan.schemes import SCHEMES, Domain, JobShape, Scheme
from ettr.plan.schemes.base import Affine, affine_terms, checked
from ettr.report.html import content_policy, environment, own_file, script_json
from ettr.units import SECONDS_PER_DAY
from ettr.version import __version__
from ettr.words import significant

ASSUMED_TARGET = 0.9
ASSUMED_DAYS = 30.0
_SCRIPTS = ("planner_forms", "planner_state", "planner")
TYPED = "typed write time"


def planner_html(plan: RunPlan, around: tuple[tuple[float, ...], ...] | None = None) -> str:
    """The page as HTML, its sliders at the plan's run.

    Args:
        around: ETTR by simulation over that of the exact form, around the run
            (`simulated_around`): all of the page then answers with the simulation.
    """
    job = plan.job or assumed_job(plan)
    style = own_file("templates/report.css", "templates/planner.css")
    script = own_file(*(f"templates/{name}.js" for name in _SCRIPTS))
    return (
        environment()
        .get_template("planner.html.j2")
        .render(
            subtitle="Move a slider or type a value: everything follows.",
            notes=_notes(plan, job),
            simulated=_simulated(plan),
            by="" if plan.simulated is None else ("simulated" if around else "exact form"),
            footer=f"ettr {__version__}. Nothing is loaded from anywhere; the file can be kept.",
            given=script_json(given(plan, job) | {"around": around, "factors": AROUND}),
            policy=Markup(content_policy([script], [style])),  # noqa: S704 - of hashes only
            style=style,
            script=script,
        )
    )


def assumed_job(plan: RunPlan) -> JobShape:
    """The job that schemes are shown for where none is given."""
    return JobShape(
        **plan.run.shape_values(),
        state_bytes=1e12,
        step_s=10.0,
        storage_bytes_per_s=100e9,
        replicas=2,
    )


def given(plan: RunPlan, job: JobShape) -> dict[str, Any]:
    """What the page starts from."""
    run, band = plan.run, plan.rate.per_node_day
    shares = plan.domain_shares or {Domain.NODE.key: 1.0}
    cost = None if plan.answers is None else plan.answers.cost
    price = None if cost is None else cost.price
    known = band.low < band.high and math.isfinite(band.high) and band.low > 0
    return {
        "gpus_per_node": plan.gpus_per_node,
        "host_bytes": job.host_bytes,
        # the restart of the page is without the load of the state, which the schemes add
        "load_s": run.restart_s - job.restart_s,
        "band": {
            "low_per_1000": PER_NODE_DAYS * band.low,
            "high_per_1000": PER_NODE_DAYS * band.high,
        }
        if known
        else None,
        "state": {
            "gpus": plan.n_gpus or run.n_nodes * plan.gpus_per_node,
            "per_1000": PER_NODE_DAYS * run.failures_per_node_day,
            "interval_s": run.interval_s,
            "write_s": run.write_s,
            "restart_s": job.restart_s,
            "queue_s": run.queue_s,
            "target": plan.target or ASSUMED_TARGET,
            "best": plan.best_planned,
            "scheme": TYPED,
            "days": run.productive_s / SECONDS_PER_DAY
            if math.isfinite(run.productive_s)
            else ASSUMED_DAYS,
            "price": None if price is None else price.per_gpu_hour,
        },
        "simulated": plan.simulated is not None,
        "currency": "" if price is None else price.currency,
        "schemes": [_scheme(scheme, job, shares) for scheme in _schemes_of(plan)],
    }


def _schemes_of(plan: RunPlan) -> tuple[Scheme, ...]:
    """The schemes with the inputs that the plan ranks them with."""
    planned = {one.name: one.inputs for one in plan.schemes}

    def with_inputs(scheme: Any) -> Scheme:
        made: Scheme = replace(scheme, **planned.get(scheme.name, {}))
        return made

    return tuple(map(with_inputs, SCHEMES))


def _scheme(scheme: Scheme, job: JobShape, shares: dict[str, float]) -> dict[str, Any]:
    terms = affine_terms(scheme, job)
    return {
        "name": scheme.name,
        "why": f"{scheme.source}. {scheme.assumptions}",
        "slowdown": terms.fixed.slowdown,
        "durable_period_s": terms.fixed.durable_period_s,
        "min_nodes": terms.fixed.min_nodes,
        "step_s": job.step_s,
        "stall": _numbers(terms.stall_s),
        "lag": _numbers(terms.lag_s),
        "durable_stall": _numbers(terms.durable_stall_s),
        "durable_lag": _numbers(terms.durable_lag_s),
        "shortest": _numbers(terms.shortest_interval_s),
        "host_bytes": _numbers(terms.host_bytes),
        "obstacle": checked(replace(terms.fixed, host_bytes=0.0, min_nodes=1), job).obstacle,
        "responses": [
            {
                "domain": domain.key,
                "share": shares.get(domain.key, 0.0),
                "level": response.level.name.lower(),
                "restart": _numbers(terms.restart_s[domain]),
                "lost": _numbers(terms.lost_s[domain]),
                "lost_staleness_share": response.lost_staleness_share,
                "waits": response.waits,
                "absent": _numbers(terms.absent_share[domain]),
            }
            for domain, response in terms.fixed.responses.items()
        ],
    }


def _numbers(affine: Affine) -> list[float]:
    return [affine.constant, affine.over_nodes, affine.per_restart_s]


def _simulated(plan: RunPlan) -> dict[str, Any] | None:
    """What the simulation says of the run, for the head of the page; None where none was asked."""
    simulated = plan.simulated
    if simulated is None:
        return None
    ettr, error = simulated.run_ettr(plan.run.productive_s), 2.0 * simulated.ettr_error
    target = plan.target or ASSUMED_TARGET
    verdict = "reached" if ettr > target else "missed"
    if abs(ettr - target) <= error:
        verdict = "too near to call"
    cost = plan.answers.cost if plan.answers is not None else None
    rows = [("ETTR", f"{ettr:.3f} ± {significant(error, 1)}"), (f"target of {target:g}", verdict)]
    if simulated.mean_s is not None:
        rows.append(("wall-clock, mean", f"{simulated.mean_s / SECONDS_PER_DAY:.1f} days"))
    if simulated.short_of_nodes is not None:
        rows.append(("time without enough nodes", f"{simulated.short_of_nodes:.1%}"))
    if cost is not None:
        for what, hours in (
            ("held", cost.held_gpu_hours.estimate or 0.0),
            ("of it lost", cost.lost_gpu_hours.estimate or 0.0),
        ):
            money = cost.money(hours)
            paid = (
                ""
                if money is None or cost.price is None
                else f", {money:,.0f} {cost.price.currency}"
            )
            of_day = "" if cost.whole_run else " a day"
            rows.append((f"{what}{of_day}", f"{hours:,.0f} GPU-hours{paid}"))
    return {
        "rows": rows,
        "exact": f"{simulated.exact_ettr:.3f}",
        "why": simulated.sentence,
    }


def _notes(plan: RunPlan, job: JobShape) -> tuple[str, ...]:
    assumed = "" if plan.job else " (assumed: give yours with ettr plan --state-bytes)"
    return (
        "The exact form counts failures during restart and catch-up; nodes are in series and fail "
        "at a constant rate. The run is assumed to be long.",
        f"The schemes are for a state of {significant(job.state_bytes / 1e12)} TB, steps of "
        f"{job.step_s:g} "
        f"s and {job.storage_bytes_per_s / 1e9:g} GB/s to durable storage{assumed}.",
        *(() if plan.simulated is None else (plan.simulated.sentence,)),
        plan.rate.meaning,
        *plan.assumptions,
    )
