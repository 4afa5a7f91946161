"""Whether the allocations say no more than the attempts do: then few questions need a join of both.

Where that holds throughout, the node-time of an attempt is its time times its nodes. To join
millions of attempts with what they held by their ids, which are long texts, costs ten times as
much as to test it.
"""

from __future__ import annotations

from ettr.facts import Facts


def every_node_is_listed(facts: Facts) -> bool:
    """Whether each attempt with a list of nodes holds as many rows as it has, with its own times.

    Also that no other rows are held, and that the list of an attempt on one node is the name of a
    node. An ingestion makes the rows of the lists, and of tables that contradict each other the
    lists count.
    """
    row = facts.row("node_lists")
    if row["no_number"] or row["unheld"]:
        return False
    return all(row[f"listed{half}"] == row[f"held{half}"] for half in ("", "_low", "_high"))
