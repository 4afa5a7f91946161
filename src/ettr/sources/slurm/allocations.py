"""The nodes of attempts: one row of `allocations` for each, by whole columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ettr.sources.node_lists import NodeLists
from ettr.sources.slurm.columns import FLOAT, INT, TEXT
from ettr.tables import ALLOCATIONS


@dataclass(frozen=True, slots=True)
class Allocated:
    """Rows of `allocations`, and how many attempts do not fit their node list.

    Attributes:
        rows: one for each node of each attempt that has started.
        without_elapsed: attempts that have nodes and no elapsed time; they have no rows.
        node_count_differs: attempts whose number of nodes is not the length of their list.
    """

    rows: pa.Table
    without_elapsed: int = 0
    node_count_differs: int = 0


def allocations_of(attempts: pa.Table, node_lists: NodeLists) -> Allocated:
    """The nodes of some attempts; GPUs are shared equally between them."""
    started = pc.and_(attempts.column("start").is_valid(), attempts.column("node_list").is_valid())
    knows = pc.and_(started, attempts.column("elapsed_s").is_valid())
    without_elapsed = (pc.sum(started).as_py() or 0) - (pc.sum(knows).as_py() or 0)
    rows = attempts.filter(knows)
    if not rows.num_rows:
        return Allocated(ALLOCATIONS.empty(), without_elapsed)
    lists = rows.column("node_list").combine_chunks().dictionary_encode()
    names = [node_lists(text) or () for text in lists.dictionary.to_pylist()]
    sizes = np.array([len(each) for each in names], dtype=np.int64)
    firsts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    flat = pa.array([name for each in names for name in each], TEXT)
    codes = lists.indices.to_numpy().astype(np.int64)
    counts = sizes[codes]
    differs = pc.not_equal(rows.column("n_nodes").combine_chunks(), pa.array(counts))
    row_of = np.repeat(np.arange(len(codes)), counts)
    within = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    shared = rows.select([name for name in ALLOCATIONS.names if name != "node"])
    shared = shared.take(pa.array(row_of))
    out = {name: shared.column(name) for name in shared.column_names}
    out["n_gpus"] = pc.divide(
        out["n_gpus"].cast(FLOAT, safe=False), pa.array(counts[row_of], INT).cast(FLOAT)
    )
    out["node"] = flat.take(pa.array(firsts[codes][row_of] + within))
    made = pa.table([out[name] for name in ALLOCATIONS.names], schema=ALLOCATIONS.arrow_schema)
    return Allocated(made, without_elapsed, pc.sum(differs).as_py() or 0)


def attempt_ids(cluster: pa.Array, job_id: pa.Array, submit: pa.Array) -> pa.Array:
    """The text of `ettr.tables.rows.attempt_id`, by whole columns."""
    micros = submit.cast(INT).fill_null(0).to_numpy()
    none = submit.is_null().to_numpy(zero_copy_only=False)
    seconds = pa.array(micros // 1_000_000, INT, mask=none)
    stamp = pc.replace_substring(
        seconds.cast(pa.timestamp("s")).cast(TEXT), " ", "T", max_replacements=1
    )
    key = pc.binary_join_element_wise(cluster, job_id, "/")
    return pc.binary_join_element_wise(key, pc.binary_join_element_wise(stamp, "Z", ""), "@")
