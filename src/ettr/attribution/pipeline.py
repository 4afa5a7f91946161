"""The whole of attribution in one call, with the small tables in the middle computed once."""

from __future__ import annotations

from dataclasses import dataclass

from ibis.expr.types import BooleanValue, Table

from ettr.attribution.endings import endings
from ettr.attribution.episodes import episodes, explanatory_segments, observations, segments
from ettr.attribution.failures import failures
from ettr.attribution.maintenance import without_planned_ends
from ettr.attribution.rules import FoldingRules, LogMatching, Window
from ettr.attribution.verdicts import verdicts
from ettr.attribution.window import observed
from ettr.tables import INTERRUPTIONS
from ettr.tables.materialize import materialize
from ettr.taxonomy import Taxonomy

MOST_KEPT = 2_000_000
"""Events that may be kept on the backend: some hundreds of megabytes."""
_JUDGED = ("event_id", "cluster", "node", "time", "time_end", "check", "code", "severity", "entity")
_SHOWN = ("message", "file_id", "line")


@dataclass(frozen=True, slots=True)
class Attribution:
    """What ended the attempts and why, as tables on the backend of the input.

    Args:
        interruptions: the table `interruptions`.
        endings: the same with what the scheduler says of each end.
        episodes: one row for each folded episode of a fault.
        observed: one row for each attempt, node and episode observed there in the window.
        failures: the table `failures`.
        rules: the folding rules that were used.
        window: the window that was used.
        observations: every observation, computed when it is asked for.
        explanatory: the segments of those that may explain or place a failure.
        judged_events: the events that can be among the observations, kept on the backend; None
            where they are too many to keep, their number is not known, or none is to be shown.
    """

    interruptions: Table
    endings: Table
    episodes: Table
    observed: Table
    failures: Table
    rules: FoldingRules
    window: Window
    observations: Table
    explanatory: Table
    judged_events: Table | None = None


def attribute(
    attempts: Table,
    allocations: Table,
    events: Table,
    node_states: Table,
    taxonomy: Taxonomy,
    *,
    rules: FoldingRules | None = None,
    window: Window | None = None,
    matching: LogMatching | None = None,
    kinds: Table | None = None,
    shown: bool = True,
) -> Attribution:
    """Interruptions, episodes, what was observed in the window, and failures.

    Folded segments and what was observed are small next to the events, and kept on the backend as
    long as the result is. `kinds` holds every `check`, `code` and `severity` of the events, where a
    small table of them is at hand. `shown`: whether log lines behind the failures will be asked
    for; their text and place, which nothing else needs, are then read along with the events.
    """
    rules, window = rules or FoldingRules(), window or Window()
    kept = None
    if kinds is not None:
        columns = (*_JUDGED, *_SHOWN) if shown else _JUDGED
        kept = _kept(events, verdicts(kinds, taxonomy, rules), kinds, columns)
    seen = observations(events if kept is None else kept, node_states, taxonomy, rules, kinds)
    parts = materialize(segments(seen, rules))
    explanatory = explanatory_segments(parts, rules)
    met = materialize(observed(explanatory, seen, allocations, window))
    ends = materialize(endings(attempts, events, taxonomy, matching))
    acquitted = without_planned_ends(ends, met, allocations, node_states, taxonomy, matching)
    if acquitted is not ends:
        ends = materialize(acquitted)
    folded = episodes(parts)
    return Attribution(
        interruptions=ends.select(*INTERRUPTIONS.names),
        endings=ends,
        episodes=folded.filter(folded.fault),
        observed=met,
        failures=materialize(failures(ends, met)),
        rules=rules,
        window=window,
        observations=seen,
        explanatory=explanatory,
        judged_events=kept if shown else None,
    )


def _kept(events: Table, judged: Table, kinds: Table, columns: tuple[str, ...]) -> Table | None:
    """Columns of the events that may be judged, read once for all stages.

    Most events of a large site are checks that passed. Their ids are what costs most to read, and
    of those the few others are needed several times.
    """
    if "events" not in kinds.columns:
        return None
    rows = judged.select("check", "severity").distinct().to_pyarrow()
    checks, severities = (sorted(set(column.to_pylist())) for column in rows.columns)
    if not checks:
        return None

    def may_be_judged(table: Table) -> BooleanValue:
        return table["check"].isin(checks) & table["severity"].isin(severities)

    how_many = kinds.filter(may_be_judged(kinds))["events"].sum().to_pyarrow().as_py()
    if (how_many or 0) > MOST_KEPT:
        return None
    some = events.filter(may_be_judged(events) & events["node"].notnull())
    return materialize(some.select(*columns))
