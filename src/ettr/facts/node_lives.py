"""Lives of nodes: what class a node is of, and from when to when.

`node_classes` holds them. A node has a new life where jobs hold another type of GPU on it from some
moment on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ettr.facts.facts import Facts
from ettr.facts.files import made

NO_GPUS = "cpu"
"""What is asked for in place of a type of GPU to get the nodes without any."""
_MODELS = re.compile(
    r"(?<![a-z0-9])((?:gb?|[abhlptv])\d{1,3}0{1,2}|[alt]\d{1,2}s?|mi\d{3}[ax]?|gaudi\d?)(?![a-z0-9])"
)


@made(
    "partition_models",
    (("cluster", "VARCHAR"), ("partition", "VARCHAR"), ("gpu_type", "VARCHAR")),
    reads=("attempts",),
)
def _partition_models(facts: Facts) -> list[tuple[object, ...]]:
    """Partitions that are called by a model of GPU, such as `gpu-h100`."""
    named = facts.distinct("attempts", "cluster", "partition")
    models = ((*key, _MODELS.findall((key[1] or "").lower())) for key in sorted(named, key=str))
    return [(cluster, name, found[0]) for cluster, name, found in models if len(found) == 1]


def in_life(lives: str, rows: str) -> str:
    """The condition that a row of an attempt began in a life of `node_classes`."""
    began = f"coalesce({rows}.start_us, 0)"
    return f"{began} >= {lives}.from_us AND {began} < {lives}.to_us"


def kinds_of_nodes(facts: Facts) -> dict[tuple[str, str], tuple[bool, str | None]]:
    """Whether each node has GPUs, and their type, in its last life."""
    names = ("from_us", "cluster", "node", "has_gpus", "gpu_type")
    lives = sorted(facts.distinct("node_classes", *names), key=lambda life: life[0])
    return {(cluster, node): (has_gpus, kind) for _, cluster, node, has_gpus, kind in lives}


def nodes_of_types(facts: Facts, names: Sequence[str]) -> set[tuple[str, str]]:
    """The nodes of these types of GPU in any of their lives; `cpu` are those without GPUs."""
    lives = facts.distinct("node_classes", "cluster", "node", "has_gpus", "gpu_type")
    return {
        (cluster, node)
        for cluster, node, has_gpus, kind in lives
        if (kind if has_gpus else NO_GPUS) in names
    }
