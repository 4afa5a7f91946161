"""The stored tables under their own names, as every question reads them.

Who cancelled a job is known where any log says it. States of nodes have an end where it shows that
they are over, and those that only the controller's log has are among them.
"""

from __future__ import annotations

from ettr.facts.facts import Facts
from ettr.facts.files import made
from ettr.facts.het_jobs import PARTS_HELD_S
from ettr.facts.stored import kept, narrow_columns, selected
from ettr.tables import NODE_STATES, TABLES

_CONTROLLER = "slurmctld-log"


@made("attempts", (), reads=("whole_attempts", "cancellers"), takes=("small", "het_jobs"))
def _attempts(facts: Facts) -> str:
    """One row is an attempt, with who cancelled it where any log says it."""
    whole = facts.table("whole_attempts")
    if not facts.rows("cancellers"):
        return whole
    names = [*narrow_columns(TABLES["attempts"])]
    if facts.given("het_jobs").wholes:
        names += PARTS_HELD_S.values()
    columns = ", ".join(
        "coalesce(r.cancelled_by, c.uid) AS cancelled_by"
        if name == "cancelled_by"
        else f'r."{name}"'
        for name in names
    )
    joined = f"{whole} r LEFT JOIN {facts.table('cancellers')} c ON r.attempt_id = c.attempt_id"
    return kept(facts, "attempts", f"SELECT {columns} FROM {joined}", "attempts")


@made("ended_states", (), reads=("whole_node_states", "known_ends"), takes=("small",))
def _ended_states(facts: Facts) -> str:
    """One row is a state of a node, with an end where it shows that it is over."""
    whole = facts.table("whole_node_states")
    if not facts.rows("known_ends"):
        return whole
    columns = selected(NODE_STATES, "r", {"end_us": "coalesce(r.end_us, k.end_us)"})
    same = " AND ".join(f"r.{name} = k.{name}" for name in ("cluster", "node", "start_us", "state"))
    ends = facts.table("known_ends")
    sql = f"SELECT {columns} FROM {whole} r LEFT JOIN {ends} k ON {same}"
    return kept(facts, "ended_states", sql, "node_states")


@made("node_states", (), reads=("raw_files", "ended_states", "controller_states"), takes=("small",))
def _node_states(facts: Facts) -> str:
    """One row is a state of a node, those that only the controller's log has among them."""
    ended = facts.table("ended_states")
    sources = {row["source"] for row in facts.rows("raw_files")}
    if _CONTROLLER not in sources or not facts.rows("controller_states"):
        return ended
    own = facts.table("controller_states")
    sql = (
        f"SELECT {selected(NODE_STATES, 'r')} FROM {ended} r "
        f"UNION ALL SELECT {selected(NODE_STATES, 's')} FROM {own} s"
    )
    return kept(facts, "node_states", sql, "node_states")


for _name in TABLES.keys() - {"attempts", "node_states"}:
    made(_name, (), reads=(f"whole_{_name}",))(
        lambda facts, name=f"whole_{_name}": facts.table(name)  # type: ignore[misc]
    )
