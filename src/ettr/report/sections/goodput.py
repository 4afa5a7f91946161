"""What failures cost in GPU-hours: first order, second order, crash loops."""

from __future__ import annotations

from ettr.metrics.goodput import LostGoodput
from ettr.metrics.preemptions import PreemptionLinks
from ettr.report.numbers import number, percent, share_between
from ettr.report.section import Figure, Section, Table

_AXIS = {"title": {"text": "GPU-hours lost"}, "rangemode": "tozero"}


def goodput_section(lost: LostGoodput, gpu_hours: float) -> Section:
    """Lost goodput by cause and by size; `gpu_hours` is what ran in all."""
    total = lost.first_order_gpu_hours + lost.second_order_gpu_hours
    share = total / gpu_hours if gpu_hours else None
    lead = (
        f"Failures cost {number(total)} GPU-hours, {percent(share)} of the {number(gpu_hours, 6)} "
        f"that ran: {number(lost.first_order_gpu_hours)} in the failed jobs and "
        f"{number(lost.second_order_gpu_hours)} ({percent(lost.second_order_share)}) in jobs "
        "preempted so that failed ones could restart."
    )
    causes = lost.by_cause
    figure = Figure(
        "goodput",
        "Lost goodput by cause",
        "GPU-hours lost in the failed jobs and in those preempted for their restart.",
        tuple(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [cause.symptom for cause in causes][::-1],
                "x": values[::-1],
                "hovertemplate": "%{y}: %{x:.4g} GPU-hours<extra>" + name + "</extra>",
            }
            for name, values in (
                ("first order", [c.first_order_gpu_hours for c in causes]),
                ("second order", [c.second_order_gpu_hours for c in causes]),
            )
        ),
        {"barmode": "stack", "xaxis": _AXIS, "margin": {"l": 140}},
    )
    headers = ("failures", "first order", "preemptions", "second order", "GPU-hours")
    cause_rows = tuple(
        (
            c.symptom,
            number(c.failures),
            number(c.first_order_gpu_hours, 4),
            number(c.preemptions),
            number(c.second_order_gpu_hours, 4),
            number(c.gpu_hours, 4),
        )
        for c in causes
    )
    size_rows = tuple(
        (
            s.size.label,
            number(s.failures),
            number(s.first_order_gpu_hours, 4),
            number(s.preemptions),
            number(s.second_order_gpu_hours, 4),
            number(s.gpu_hours, 4),
        )
        for s in lost.by_size
    )
    loops = tuple(
        (
            f"{loop.cluster} {loop.job_id}",
            number(loop.failures),
            number(loop.n_gpus),
            number(loop.preemptions),
            number(loop.preempted_gpus),
            number(loop.lost_gpu_hours, 4),
            ", ".join(loop.symptoms),
        )
        for loop in lost.crash_loops
    )
    numeric = frozenset(range(1, 6))
    tables = (
        Table("Lost by cause, GPU-hours", ("symptom", *headers), cause_rows, numeric),
        Table("Lost by size of the failed job, GPU-hours", ("GPUs", *headers), size_rows, numeric),
        Table(
            "Crash loops",
            ("job", "failures", "GPUs", "preempted jobs", "their GPUs", "GPU-hours lost", "causes"),
            loops,
            numeric,
        ),
    )
    notes = [
        f"An interruption loses at most {number(lost.cap_min)} minutes of its job's runtime, half "
        "of an assumed checkpoint interval.",
        _links_note(lost.preemption_links),
    ]
    if lost.failures_without_gpus:
        notes.append(
            f"{lost.failures_without_gpus:,} failures name no GPUs and are counted as no loss."
        )
    return Section(
        "goodput",
        "What failures cost",
        lead,
        (figure,) if causes else (),
        tables,
        tuple(notes),
    )


def _links_note(links: PreemptionLinks) -> str:
    found = len(links.links)
    note = (
        f"{found:,} of {links.preempted_attempts:,} preempted attempts made room for a failed "
        f"job; for {links.told_by_log:,} the controller's log names the job they made room for. "
        "Where it does not, an attempt that was preempted at most "
        f"{number(links.rule_window_s)} s before a failed job restarted, on one of its nodes, "
        "counts as preempted for it."
    )
    error = links.rule_error
    if error is not None and error.log_links:
        note += (
            f" Held against the log this rule has precision {share_between(error.precision)} and "
            f"recall {share_between(error.recall)} over {error.log_links:,} links."
        )
    return note
