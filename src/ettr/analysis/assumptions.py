"""What an analysis takes for granted, and the sentences that say so in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from ettr.attribution import FoldingRules, LogMatching, Window
from ettr.defaults import CONFIDENCE, LARGE_JOB_GPUS
from ettr.metrics.objectives import Objective
from ettr.metrics.run_rules import LOST_CAP_MIN, CheckpointAssumptions, PreemptionRule, RunRule
from ettr.taxonomy import Taxonomy


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What the analysis cannot read from the logs, each with the paper's value where it has one.

    `n_nodes` is the size of the fleet where the logs do not name all of its nodes; `site_file`
    names a file of defaults, and each that it gave; `now` is when objectives are judged, the end of
    the logs where None.

    Source:
        Kokolis et al. (2025) for the window, the size of large jobs and the cap of 30 minutes.
    """

    taxonomy_file: Path | None = None
    believe: str | None = None
    window: Window = field(default_factory=Window)
    folding: FoldingRules = field(default_factory=FoldingRules)
    matching: LogMatching = field(default_factory=LogMatching)
    preemption: PreemptionRule = field(default_factory=PreemptionRule)
    above_gpus: int = LARGE_JOB_GPUS
    gpus_per_node: float | None = None
    n_nodes: int | None = None
    confidence: float = CONFIDENCE
    lost_cap_min: float = LOST_CAP_MIN
    checkpoints: CheckpointAssumptions = field(default_factory=CheckpointAssumptions)
    run_rule: RunRule = field(default_factory=RunRule)
    site_file: tuple[str, ...] = ()
    objectives: tuple[Objective, ...] = ()
    now: datetime | None = None


def assumed(
    given: Assumptions,
    taxonomy: Taxonomy,
    foreign_clusters: Sequence[str],
) -> tuple[str, ...]:
    """The assumptions of an analysis in words."""
    window = given.window
    words = [
        f"An event can explain the end of an attempt from {window.before_s:.0f} s before "
        f"that end to {window.after_s:.0f} s after it.",
        f"XID codes are judged by the verdicts of {taxonomy.believe} (option --believe).",
        f"Large jobs have more than {given.above_gpus} GPUs.",
    ]
    if given.site_file:
        words.append(f"From {given.site_file[0]}: {', '.join(given.site_file[1:])}.")
    if given.gpus_per_node is not None:
        words.append(
            f"Where no log names the GPUs of a job or a node, {given.gpus_per_node:g} in each "
            "node are taken (--gpus-per-node)."
        )
    if given.n_nodes is not None:
        words.append(f"The fleet has {given.n_nodes:,} nodes, named or not (--fleet-nodes).")
    if foreign_clusters:
        words.append(
            f"No job ran on {', '.join(foreign_clusters)}, so their events and node states explain "
            "no failure: if the name is wrong, ingest them again with --cluster."
        )
    return (*words, *(f"Changed by the site: {line}." for line in taxonomy.changed))
