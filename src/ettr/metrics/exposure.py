"""The exposure behind every failure rate: node-time that jobs ran, defined once.

A log may name the nodes of an attempt (rows in `allocations`), say how many they were
(`attempts.n_nodes`), both, or neither. Attempt by attempt, so that logs of different detail can lie
in one store:

1. where its nodes are named, the sum of the time it ran on each of them;
2. else where their number is known, that number times its runtime;
3. else nothing: the attempt adds no exposure, and `ExposureBasis` counts it.

An attempt that began and whose log does not say for how long adds none either, and is counted
apart. Time suspended is no runtime. A node that two jobs share is exposed twice, once in each.
"""

from __future__ import annotations

from dataclasses import dataclass

import ibis
from ibis.expr.types import Table

from ettr.metrics.instants import first_row
from ettr.metrics.selected import counted, held_s
from ettr.tables import ALLOCATIONS
from ettr.tables.materialize import materialize
from ettr.units import SECONDS_PER_HOUR
from ettr.words import by_number

_ROUNDING = 1e-9
_OF_NODES = ("cluster", "node", "attempt_id", "start", "elapsed_s", "n_nodes")


@dataclass(frozen=True, slots=True)
class ExposureBasis:
    """What the exposure rests on: attempts that ran, by what their log says of their nodes.

    Attributes:
        node_hours: The whole exposure.
        named_node_hours: The part on nodes that the logs name.
        attempts_named: Attempts whose nodes are named.
        attempts_counted: Attempts of which only the number of nodes is known.
        attempts_unknown: Attempts of which neither is known; they add no exposure.
        attempts_without_runtime: Attempts that began, and no log says how long they ran; they add
            no exposure either, whatever is known of their nodes.
    """

    node_hours: float
    named_node_hours: float
    attempts_named: int
    attempts_counted: int
    attempts_unknown: int
    attempts_without_runtime: int

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a reader must know of it, one sentence each; none where all nodes are named."""
        words = []
        if self.attempts_counted:
            words.append(
                by_number(
                    "The nodes of {n} [attempt|attempts] are not named: [its|their] exposure is "
                    "[its|their] number of nodes times [its|their] runtime.",
                    self.attempts_counted,
                )
            )
        if self.attempts_unknown:
            words.append(
                by_number(
                    "{n} [attempt that ran names|attempts that ran name] no nodes and no number of "
                    "nodes: [it adds|they add] no exposure, so that rates come out too high.",
                    self.attempts_unknown,
                )
            )
        if self.attempts_without_runtime:
            words.append(
                by_number(
                    "{n} [attempt that began does|attempts that began do] not say how long "
                    "[it|they] ran: [it adds|they add] no exposure, so that rates come out too "
                    "high.",
                    self.attempts_without_runtime,
                )
            )
        return tuple(words)


@dataclass(frozen=True, slots=True)
class Exposure:
    """The exposure of a set of attempts, once by attempt and once by node.

    Attributes:
        by_attempt: One row an attempt, kept on the backend: `start`, `end`, `elapsed_s`, `n_nodes`,
            `n_gpus` as in `attempts`, `belongs` (whether it counts as an attempt, or adds time
            alone), `named` (whether its nodes are) and `node_s`, node-seconds, null where unknown.
            `n_held` says how many rows of `allocations` it has.
        by_node: One row an attempt and node, as in `allocations`: `cluster`, `node`, `attempt_id`,
            `start`, `elapsed_s`, and `n_nodes`, 1. Of an attempt that names no nodes there is one
            row with `node` null and `n_nodes` its number of nodes.
        basis: What was used for how many attempts.
        none_foreign: Every row of the allocations that it was made from is of one of its attempts.
    """

    by_attempt: Table
    by_node: Table
    basis: ExposureBasis
    none_foreign: bool


def exposure(attempts: Table, allocations: Table, *, all_listed: bool = False) -> Exposure:
    """The exposure of attempts, from the best that the log says of each.

    Args:
        attempts: rows of the table `attempts`.
        allocations: the table `allocations`; rows of other attempts do not count.
        all_listed: the lists of nodes of the attempts say all that they held
            (`ettr.metrics.listed_nodes`): the join is spared.
    """
    rows = _listed(attempts) if all_listed else _joined(attempts, allocations)
    by_attempt = materialize(
        rows.select(
            *("attempt_id", "start", "end", "elapsed_s", "n_nodes", "n_gpus", "n_held"),
            belongs=counted(rows),
            named=rows.held_s.notnull(),
            node_s=ibis.coalesce(rows.held_s, held_s(rows, "n_nodes")),
        )
    )
    basis = _basis(by_attempt)
    if all_listed:
        by_node = _by_node(attempts, allocations, basis, foreign=False)
        return Exposure(by_attempt, by_node, basis, none_foreign=True)
    all_held = first_row(
        allocations.aggregate(held_s=allocations.elapsed_s.sum(), rows=allocations.count())
    )
    held_hours = (all_held["held_s"] or 0.0) / SECONDS_PER_HOUR
    foreign = held_hours > basis.named_node_hours * (1.0 + _ROUNDING)
    of_attempts = by_attempt.n_held.sum().to_pyarrow().as_py() or 0
    return Exposure(
        by_attempt,
        _by_node(attempts, allocations, basis, foreign),
        basis,
        none_foreign=all_held["rows"] == of_attempts,
    )


def _joined(attempts: Table, allocations: Table) -> Table:
    """Attempts with the time and the number of their rows of `allocations`, null without any."""
    held = allocations.group_by("attempt_id").agg(
        held_s=allocations.elapsed_s.sum(),
        n_held=allocations.count(),
    )
    return attempts.left_join(held, "attempt_id")


def _listed(attempts: Table) -> Table:
    """The same, where the list of nodes of an attempt says all that it held."""
    is_listed = attempts.node_list.notnull() & (attempts.n_nodes > 0)
    return attempts.mutate(
        n_held=ibis.cases((is_listed, attempts.n_nodes), else_=ibis.null("int64")),
        held_s=ibis.cases(
            (is_listed, attempts.elapsed_s * attempts.n_nodes), else_=ibis.null("float64")
        ),
    )


def _basis(by_attempt: Table) -> ExposureBasis:
    one = by_attempt
    # its nodes may say how long it ran where its own row does not
    ran = (one.elapsed_s.coalesce(one.node_s) > 0).fill_null(False)
    counted = ~one.named & (one.n_nodes > 0).fill_null(False)
    unsaid = one.start.notnull() & one.elapsed_s.isnull() & one.node_s.isnull()
    row = first_row(
        one.aggregate(
            node_s=one.node_s.sum(where=ran),
            named_s=one.node_s.sum(where=ran & one.named),
            named=(ran & one.named).sum(),
            counted=(ran & counted).sum(),
            # what ran held a node: 0 of them is no number either
            unknown=(ran & ~one.named & ~counted).sum(),
            without_runtime=unsaid.sum(),
        )
    )
    return ExposureBasis(
        node_hours=(row["node_s"] or 0.0) / SECONDS_PER_HOUR,
        named_node_hours=(row["named_s"] or 0.0) / SECONDS_PER_HOUR,
        attempts_named=int(row["named"] or 0),
        attempts_counted=int(row["counted"] or 0),
        attempts_unknown=int(row["unknown"] or 0),
        attempts_without_runtime=int(row["without_runtime"] or 0),
    )


def _by_node(attempts: Table, allocations: Table, basis: ExposureBasis, foreign: bool) -> Table:
    """Allocations, and the attempts without; the joins are left out where they change nothing."""
    held = allocations.semi_join(attempts, "attempt_id") if foreign else allocations
    named = _of_nodes(held.mutate(n_nodes=ibis.literal(1, "int64")))
    if not basis.attempts_counted:
        return named
    ran = attempts.filter((attempts.elapsed_s > 0) & (attempts.n_nodes > 0))
    counted = ran.anti_join(allocations, "attempt_id").mutate(node=ibis.null("string"))
    return ibis.union(named, _of_nodes(counted), distinct=False)


def _of_nodes(rows: Table) -> Table:
    """The columns of `Exposure.by_node`; a union asks that both sides may hold nulls."""
    types = {column.name: column.kind.value for column in ALLOCATIONS if column.name in _OF_NODES}
    return rows.select(*_OF_NODES).cast({**types, "n_nodes": "int64"})
