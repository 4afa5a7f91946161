"""The facts of an analysis: of a store, under a selection and what is assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ettr.attribution.job_history
import ettr.attribution.rules

# facts made in Python
import ettr.attribution.shared_bursts
import ettr.facts.opening
import ettr.metrics.outages  # noqa: F401
from ettr.analysis.assumptions import Assumptions
from ettr.facts import Facts, load_when_unknown
from ettr.facts.chosen import microseconds
from ettr.facts.duck import FactText, documented
from ettr.facts.facts import Deferred
from ettr.facts.opening import facts_of_store
from ettr.store.opening import on_duckdb
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from ettr.analysis.analysis import Analysis


def facts_of(analysis: Analysis, shared: Facts | None) -> Facts:
    """The facts of an analysis; `shared`: those of another one of the same store."""
    chosen = analysis.selection
    own = {
        "selection": chosen,
        "since_us": microseconds(chosen.since),
        "until_us": microseconds(chosen.until),
        "period_start_us": Deferred(lambda _: microseconds(analysis.period.start)),
        "period_end_us": Deferred(lambda _: microseconds(analysis.period.end)),
        "all_listed": Deferred(lambda _: analysis.every_node_is_listed),
        "every_cluster": not chosen.cluster,
        "of_record": False,
        "runs_may_split": chosen.may_split_runs,
    }
    if shared is not None:
        return shared.under(**own)
    return facts_of_store(
        analysis.store if analysis.store.keeps_parquet else on_duckdb(analysis.store),
        logs=analysis,
        assumptions=analysis.assumptions,
        taxonomy=Deferred(lambda _: analysis.taxonomy),
        gpus_per_node=analysis.assumptions.gpus_per_node,
        logs_start_us=Deferred(lambda _: microseconds(analysis.logs_period.start)),
        logs_end_us=Deferred(lambda _: microseconds(analysis.logs_period.end)),
        **attribution_values(analysis.assumptions),
        **own,
    )


def documented_facts() -> list[FactText]:
    """All facts that a statement may read, those made in Python too."""
    know_every_fact()
    return documented()


def know_every_fact() -> None:
    """Load what makes facts in Python that only some questions read."""
    import ettr.analysis.back_test
    import ettr.analysis.evidence
    import ettr.analysis.loss_questions
    import ettr.analysis.questions
    import ettr.lemons.fleet
    import ettr.metrics.black_holes  # noqa: F401


load_when_unknown(know_every_fact)


def attribution_values(given: Assumptions) -> dict[str, object]:
    """The rules of attribution, as facts take them."""
    window, folding, matching = given.window, given.folding, given.matching
    bucket_s = max(SECONDS_PER_HOUR, window.length_s)
    lengths_s = {"before": window.before_s, "after": window.after_s, "bucket": bucket_s}
    lengths_s |= {"burst": folding.burst_gap_s, "sticky": folding.sticky_gap_s}
    lengths_s["tolerance"] = matching.tolerance_s
    # a node that hung a run is drained within a day; who records no step for half an hour is hung
    lengths_s |= {"hung_out": SECONDS_PER_DAY, "hung_silent": SECONDS_PER_HOUR / 2}
    lengths_us = {
        f"{name}_us": round(length_s * MICROSECONDS_PER_SECOND)
        for name, length_s in lengths_s.items()
    }
    return {"folding": folding, "above_gpus": given.above_gpus, **lengths_us}
