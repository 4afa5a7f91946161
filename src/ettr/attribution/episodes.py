"""Events fold into episodes: a burst, or a fault that repeats until somebody acts, counts once.

Observations of one thing (node, entity, check and code) belong to one episode as long as no silence
between them is longer than the gap. Folding goes in two steps with the same outcome as one: all
observations that fall into the same stretch of the gap's length are one segment, since no two of
them can be further apart; only the segments are then put in order. Eight hundred thousand lines of
one broken GPU cost one hash table, not one sort.
"""

from __future__ import annotations

import ibis
from ibis.expr.types import Table

from ettr.attribution.maintenance import NOT_RESPONDING
from ettr.attribution.rules import FoldingRules
from ettr.attribution.verdicts import NO_CODE, NO_REASON, reasons, verdicts
from ettr.tables.ibis_time import epoch_us
from ettr.taxonomy import Taxonomy
from ettr.units import MICROSECONDS_PER_SECOND, SECONDS_PER_HOUR

NODE_STATE = "node-state"
WHOLE_NODE = ""
THING = ("cluster", "node", "check", "code_key", "entity_key")
_SAID = ("symptom", "domain", "rank", "fault", "down", "sticky", "sympathetic")
_EVENT = ("event_id", "cluster", "node", "check", "code_key")
DOWN = "DOWN"
_TIME_DIGITS = 17
_HOUR_US = int(SECONDS_PER_HOUR) * MICROSECONDS_PER_SECOND


def observations(
    events: Table,
    node_states: Table,
    taxonomy: Taxonomy,
    rules: FoldingRules | None = None,
    kinds: Table | None = None,
) -> Table:
    """Everything observed that can explain or place a failure: events, and node states.

    A node state is seen once, when it began: its reason was true then, and a repair takes days.
    `stretch` counts pieces of time of the burst gap's length: two observations of one thing in one
    stretch belong to one episode.

    Args:
        events: the table `events`.
        node_states: the table `node_states`.
        taxonomy: judges what was observed.
        rules: the gaps.
        kinds: every `check`, `code` and `severity` of the events, where a small table of them is at
            hand.
    """
    rules = rules or FoldingRules()
    known = events if kinds is None else kinds
    keyed = events.filter(events.node.notnull()).mutate(code_key=events.code.fill_null(NO_CODE))
    judged = keyed.join(verdicts(known, taxonomy, rules), ["check", "code_key", "severity"])
    seen = judged.mutate(
        until=ibis.greatest(judged.time, judged.time_end.fill_null(judged.time)),
        entity_key=judged.entity.fill_null(WHOLE_NODE),
    ).select(*_EVENT, "entity_key", "time", "until", *_SAID)
    keyed = node_states.mutate(reason_key=node_states.reason.fill_null(NO_REASON))
    classed = keyed.join(reasons(node_states, taxonomy), "reason_key")
    # a node that fell silent went down, whatever its reason says; one taken down for work did not
    silent = (classed.state == DOWN) & classed.flags.fill_null("").contains(NOT_RESPONDING)
    classed = classed.filter(~classed.planned | silent)
    stated = classed.mutate(
        event_id=state_id(classed),
        check=ibis.literal(NODE_STATE),
        code_key=classed.reason_class,
        down=classed.state == DOWN,
        sticky=ibis.literal(False),
        sympathetic=ibis.literal(False),
        time=classed.start,
        until=classed.start,
        entity_key=ibis.literal(WHOLE_NODE),
    ).select(*seen.columns)
    both = ibis.union(seen, stated.filter(stated.fault | stated.down), distinct=False)
    burst_us = round(rules.burst_gap_s * MICROSECONDS_PER_SECOND)
    return both.mutate(stretch=epoch_us(both.time) // burst_us)


def state_id(node_states: Table) -> ibis.expr.types.StringValue:
    """The id by which a row of node_states stands among event ids."""
    start = epoch_us(node_states.start).cast("string")
    return ibis.literal("node_state/").concat(
        node_states.cluster, "/", node_states.node, "/", node_states.state, "/", start
    )


def segments(seen: Table, rules: FoldingRules | None = None) -> Table:
    """Stretches of observations of one thing, each with the number of its episode of that thing.

    Args:
        seen: rows of `observations`.
        rules: the gaps.
    """
    rules = rules or FoldingRules()
    burst_us = round(rules.burst_gap_s * MICROSECONDS_PER_SECOND)
    sticky_us = round(rules.sticky_gap_s * MICROSECONDS_PER_SECOND)
    time_key = epoch_us(seen.time).cast("string").lpad(_TIME_DIGITS, "0")
    short = seen.mutate(first_key=time_key.concat(seen.event_id))
    folded = short.group_by(*THING, "stretch", *_SAID).agg(
        first=short.time.min(),
        last=short.until.max(),
        n_events=short.count(),
        first_key=short.first_key.min(),
    )
    before = ibis.window(group_by=THING, order_by=["first", "first_key"], preceding=(None, 1))
    ordered = folded.mutate(covered=folded["last"].max().over(before))
    silence_us = epoch_us(ordered["first"]) - epoch_us(ordered.covered)
    gap_us = ordered.sticky.ifelse(sticky_us, burst_us)
    begins = ordered.covered.isnull() | (silence_us > gap_us)
    begun = ordered.mutate(begins=begins.ifelse(1, 0))
    so_far = ibis.window(
        group_by=THING, order_by=["first", "first_key"], preceding=None, following=0
    )
    return begun.mutate(episode=begun.begins.sum().over(so_far).cast("int64")).drop(
        "begins", "covered"
    )


def episodes(parts: Table) -> Table:
    """Episodes: one row each with first, last, n_events and the id of its first event.

    Args:
        parts: rows of `segments`.
    """
    whole = parts.group_by(*THING, "episode").agg(
        *(parts[name].max().name(name) for name in ("symptom", "domain", "rank")),
        *(parts[name].max().name(name) for name in ("fault", "down", "sticky", "sympathetic")),
        first=parts["first"].min(),
        last=parts["last"].max(),
        n_events=parts.n_events.sum().cast("int64"),
        first_key=parts.first_key.min(),
    )
    return whole.mutate(
        event_id=whole.first_key.substr(_TIME_DIGITS),
        code=whole.code_key.nullif(NO_CODE),
        entity=whole.entity_key.nullif(WHOLE_NODE),
    ).drop("first_key")


def explanatory_segments(parts: Table, rules: FoldingRules | None = None) -> Table:
    """The segments that may explain or place a failure, with the id of their episode's first event.

    A sympathetic code (XID 45) counts only where no other code of its check was seen on the node
    within a burst's gap.
    """
    rules = rules or FoldingRules()
    explanatory = _tagged(parts.filter(parts.fault | parts.down), parts)
    if not rules.count_lone_sympathetic:
        return explanatory
    return explanatory.anti_join(_accompanied(parts, rules), "episode_id")


def _tagged(some: Table, parts: Table) -> Table:
    """Segments with `episode_id`, the id of the first event of their episode."""
    begins = parts.group_by(*THING, "episode").agg(episode_key=parts.first_key.min())
    tagged = some.join(begins, [*THING, "episode"])
    return tagged.mutate(episode_id=tagged.episode_key.substr(_TIME_DIGITS)).select(
        *THING, "stretch", *_SAID, "first", "last", "n_events", "episode_id"
    )


def _accompanied(parts: Table, rules: FoldingRules) -> Table:
    """Episodes of sympathetic codes next to which another code was seen."""
    gap_us = round(rules.burst_gap_s * MICROSECONDS_PER_SECOND)
    keyed = parts.mutate(first_us=epoch_us(parts["first"]), last_us=epoch_us(parts["last"])).mutate(
        hour=lambda t: t.first_us // _HOUR_US
    )
    lone = _tagged(parts.filter(parts.sympathetic & parts.fault), parts)
    lone = lone.select(
        "cluster",
        "node",
        "check",
        "episode_id",
        from_us=epoch_us(lone["first"]) - gap_us,
        to_us=epoch_us(lone["last"]) + gap_us,
    )
    lone = lone.mutate(
        hour=ibis.array(
            [(lone.from_us // _HOUR_US) - 1, lone.from_us // _HOUR_US, lone.to_us // _HOUR_US]
        ).unnest()
    )
    others = keyed.filter(~keyed.sympathetic).select(
        "cluster", "node", "check", "hour", "first_us", "last_us"
    )
    met = lone.join(others, ["cluster", "node", "check", "hour"])
    return (
        met.filter((met.first_us <= met.to_us) & (met.last_us >= met.from_us))
        .select("episode_id")
        .distinct()
    )
