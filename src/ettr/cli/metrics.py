"""`ettr status`, `sizes`, `failures`, `mttf`, `runs`, `goodput`, `nodes`, `quality`.

Each prints one section of the report as text, or its part of the report's JSON.
"""

from __future__ import annotations

from collections.abc import Callable

from ettr.cli import options as opt
from ettr.cli.output import say, say_json


def _metric(name: str, help_text: str) -> Callable[..., None]:
    """The command that prints one section of the report."""

    def command(
        store: opt.StoreArgument,
        taxonomy: opt.TaxonomyOption = None,
        believe: opt.BelieveOption = None,
        gpus_per_node: opt.GpusPerNodeOption = None,
        above_gpus: opt.AboveGpusOption = 128,
        confidence: opt.ConfidenceOption = 0.9,
        window: opt.WindowOption = None,
        run_id: opt.RunIdOption = None,
        checkpoint_min: opt.CheckpointOption = None,
        restart_min: opt.RestartOption = None,
        json: opt.JsonOption = False,
    ) -> None:
        from ettr.analysis import Analysis
        from ettr.report.document import plain
        from ettr.report.page import PARTS, SECTIONS
        from ettr.report.text import section_text
        from ettr.store import open_store

        assumptions = opt.assumptions(
            taxonomy=taxonomy,
            believe=believe,
            above_gpus=above_gpus,
            gpus_per_node=gpus_per_node,
            confidence=confidence,
            window=window,
            run_id=run_id,
            checkpoint_min=checkpoint_min,
            restart_min=restart_min,
        )
        with open_store(store) as opened:
            analysis = Analysis(opened, assumptions)
            if json:
                say_json(plain(PARTS[name](analysis)))
            else:
                say(section_text(SECTIONS[name](analysis)))

    command.__doc__ = help_text
    return command


status = _metric("status", "How jobs end, by count and by the GPU time they held.")
sizes = _metric("sizes", "Job sizes, by count and by the GPU time they held.")
failures = _metric("failures", "Failures per 1,000 node-days, by symptom and over time.")
mttf = _metric("mttf", "Time to failure by job size with exact intervals, and the projected line.")
runs = _metric("runs", "Job runs over requeues and resubmissions, and the ETTR of each.")
goodput = _metric("goodput", "GPU-hours lost to failures, by cause, first and second order.")
nodes = _metric("nodes", "Node availability: repair times, time in drain, capacity lost.")
quality = _metric("quality", "Data quality: rejects, open jobs, gaps, clock skew, assumptions.")
