"""Columns of sacct texts -> `attempts` and `allocations`; the one place where their meaning lies.

`slurm-sacct`, `slurm-sacct-json` and the sources that wrap sacct rows in something else all end
here, so that one job read in four shapes gives one row. Work is done once per distinct text or by
whole columns, since a site's history holds millions of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions
from ettr.sources.node_lists import NodeLists
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.columns import FLOAT, INT, TEXT, Rows, mapped, matches
from ettr.sources.slurm.steps import Steps
from ettr.sources.slurm.times import TimeColumns, nothing_to_null
from ettr.tables import ALLOCATIONS, ATTEMPTS
from ettr.tables.rows import DEFAULT_CLUSTER

# any one of each group will do; a record without them cannot be placed in time or judged
NEEDED = (
    ("JobID", "JobIDRaw"),
    ("State",),
    ("Submit", "Start"),
    ("ElapsedRaw", "Elapsed", "End"),
)
_USED_TEXT = """
alloccpus allocgres allocnodes alloctres account cluster comment derivedexitcode elapsed
elapsedraw eligible end exitcode failednode jobid jobidraw jobname ncpus nnodes nodelist
partition priority qos reason restarts start state submit submitline suspended timelimit
timelimitraw user workdir
"""
USED = frozenset(_USED_TEXT.split())


@dataclass(frozen=True, slots=True)
class Bad:
    """One record that is no attempt: its index among those given, a slug, and why in words."""

    index: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Converted:
    """What came of some records: rows, the bad ones, and those that are no rows by design."""

    attempts: pa.Table
    allocations: pa.Table
    bad: tuple[Bad, ...]
    skipped: int


def need_fields(found: Sequence[str], what: str) -> None:
    """Check that the fields without which nothing can be said are among `found`.

    Raises:
        SourceError: some are not; the message lists them and what was found.
    """
    have = {name.lower() for name in found}
    lacking = [group for group in NEEDED if not any(name.lower() in have for name in group)]
    if lacking:
        raise SourceError(
            f"{what}: needs {', '.join(' or '.join(group) for group in lacking)}; "
            f"found {', '.join(found[:40])}{', ...' if len(found) > 40 else ''}"
        )


class AttemptReader:
    """Turns records of one file into rows, batch by batch, and keeps what it assumed."""

    def __init__(self, source: str, file_id: str, options: ReadOptions, what: str) -> None:
        self._source, self._file_id = source, file_id
        self._cluster = options.cluster
        self._times = TimeColumns(options.timezone, what)
        self._nodes = NodeLists()
        self._counts: Counter[str] = Counter()
        self._gpus_seen = False
        self._tres_seen = False

    def convert(self, given: Mapping[str, pa.Array], lines: npt.NDArray[np.int64]) -> Converted:
        """Records as columns of strings (by lower-case field name) -> rows.

        Steps must follow their job, as sacct prints them; they become its `step_state`.

        Raises:
            UsageError: the times have no zone and the user gave none.
        """
        ids = given["jobid"] if "jobid" in given else given["jobidraw"]
        is_job = matches(ids, words.JOB_ID)
        is_step = matches(ids, words.STEP_ID)
        job_at = np.flatnonzero(is_job)
        bad = [
            Bad(int(i), "bad-job-id", f"{ids[int(i)].as_py()!r:.80} is no job id")
            for i in np.flatnonzero(~(is_job | is_step))
        ]
        steps = Steps.fold(given, ids, is_job, is_step)
        columns = {name: given[name] for name in given if name in USED}
        if len(job_at) != len(ids):
            where = pa.array(job_at)
            columns = {name: column.take(where) for name, column in columns.items()}
        rows = Rows(columns, len(job_at))
        table = self._attempts(rows, steps, lines[job_at])
        bad += [Bad(int(job_at[i]), reason, detail) for i, reason, detail in rows.bad()]
        table, repeated = self._without_repeats(table.filter(pa.array(~rows.is_bad)))
        self._counts["repeated"] += repeated
        self._counts["steps"] += int(is_step.sum())
        allocations = self._allocations(table)
        return Converted(table, allocations, tuple(bad), int(is_step.sum()) + repeated)

    def _attempts(self, rows: Rows, steps: Steps, lines: npt.NDArray[np.int64]) -> pa.Table:
        n = rows.n
        out: dict[str, pa.Array] = {}
        self._identity(rows, out)
        out["state"], out["cancelled_by"] = rows.pair("state", words.state_and_user, TEXT, TEXT)
        rows.reject(out["state"].is_null(), "unknown-state", "state")
        for column, field in (("exit", "exitcode"), ("derived_exit", "derivedexitcode")):
            code, signal = rows.pair(field, words.exit_code, INT, INT)
            out[f"{column}_code"], out[f"{column}_signal"] = code, signal
        out["step_state"] = steps.state
        if "derivedexitcode" not in rows.columns:
            out["derived_exit_code"], out["derived_exit_signal"] = steps.code, steps.signal
        self._when(rows, out)
        self._how_much(rows, out)
        out["attempt_id"] = _attempt_ids(out["cluster"], out["job_id"], out["submit"])
        out["source"] = pa.repeat(self._source, n)
        out["file_id"] = pa.repeat(self._file_id, n)
        out["line"] = pa.array(lines, INT)
        for schema in ATTEMPTS:
            if schema.name not in out:
                out[schema.name] = pa.nulls(n, schema.kind.arrow)
        return pa.table([out[name] for name in ATTEMPTS.names], names=list(ATTEMPTS.names))

    def _identity(self, rows: Rows, out: dict[str, pa.Array]) -> None:
        ids = rows.columns.get("jobid", rows.columns.get("jobidraw"))
        out["job_id"] = ids
        out["job_id_raw"] = rows.text("jobidraw")
        for column, mark in (("array_job_id", "_"), ("het_job_id", "+")):
            member = pc.match_substring(ids, mark)
            if pc.any(member).as_py():
                first = pc.replace_substring_regex(ids, r"\+.*$" if mark == "+" else r"[_+].*$", "")
                out[column] = pc.if_else(member, first, None)
        own = rows.text("cluster")
        if self._cluster:
            own = pa.repeat(self._cluster, rows.n)
        elif own.null_count:
            self._counts["cluster"] += own.null_count
            own = own.fill_null(DEFAULT_CLUSTER)
        out["cluster"] = own
        for column, field in (
            ("name", "jobname"),
            ("user", "user"),
            ("account", "account"),
            ("partition", "partition"),
            ("qos", "qos"),
            ("comment", "comment"),
            ("work_dir", "workdir"),
            ("submit_line", "submitline"),
        ):
            out[column] = rows.text(field)
        for column, field in (("reason", "reason"), ("failed_node", "failednode")):
            out[column] = nothing_to_null(rows.text(field))

    def _when(self, rows: Rows, out: dict[str, pa.Array]) -> None:
        for name in ("submit", "start", "end", "eligible"):
            out[name], wrong = self._times.read(rows.text(name))
            if name == "eligible":
                self._counts["eligible"] += int(wrong.sum())
            else:
                rows.reject(wrong, "bad-timestamp", name)
        lacks = out["submit"].null_count
        if lacks:
            out["submit"] = pc.coalesce(out["submit"], out["start"])
            none = out["submit"].is_null().to_numpy(zero_copy_only=False)
            self._counts["submit"] += lacks - int(none.sum())
            rows.reject(none, "no-submit-time", "submit")
        whole, wrong = rows.integers("elapsedraw")
        elapsed = whole.cast(FLOAT, safe=False)
        rows.reject(wrong, "bad-duration", "elapsedraw")
        if "elapsedraw" not in rows.columns:
            elapsed, wrong = rows.mapped("elapsed", words.duration_s, FLOAT)
            rows.reject(wrong, "bad-duration", "elapsed")
        if elapsed.null_count and out["end"].null_count < rows.n:
            span = pc.subtract(out["end"].cast(INT), out["start"].cast(INT))
            elapsed = pc.coalesce(elapsed, pc.divide(span.cast(FLOAT, safe=False), 1e6))
        rows.reject(pc.less(elapsed, 0).fill_null(False), "bad-duration", "elapsedraw")
        out["elapsed_s"] = pc.if_else(out["start"].is_valid(), elapsed, None)
        out["suspended_s"], wrong = rows.mapped("suspended", words.duration_s, FLOAT)
        self._counts["optional"] += int(wrong.sum())
        limit, wrong = rows.mapped("timelimitraw", words.minutes_to_s, FLOAT)
        if "timelimitraw" not in rows.columns:
            limit, wrong = rows.mapped("timelimit", words.duration_s, FLOAT)
        out["time_limit_s"] = limit
        self._counts["optional"] += int(wrong.sum())

    def _how_much(self, rows: Rows, out: dict[str, pa.Array]) -> None:
        for name in ("priority", "restarts"):
            out[name], wrong = rows.integers(name)
            self._counts["optional"] += int(wrong.sum())
        tres = rows.text("alloctres")
        has_list = "nodelist" in rows.columns
        node_list = nothing_to_null(rows.text("nodelist"))
        out["node_list"] = node_list
        if has_list:
            fine, _ = mapped(node_list, lambda text: self._nodes(text) is not None, pa.bool_())
            rows.reject(pc.invert(fine).fill_null(False), "bad-node-list", "nodelist")
        else:
            self._counts["no-node-list"] += rows.n
        never = pc.and_(node_list.is_null(), has_list)
        for column, fields, kind in (
            ("n_nodes", ("allocnodes", "nnodes"), "node"),
            ("n_cpus", ("alloccpus", "ncpus"), "cpu"),
        ):
            counts = []
            for field in fields:
                count, wrong = rows.integers(field)
                rows.reject(wrong, "bad-number", field)
                rows.reject(pc.less(count, 0).fill_null(False), "bad-number", field)
                counts.append(count)
            known = pc.coalesce(*counts)
            if known.null_count:
                known = pc.coalesce(known, mapped(tres, _count_of(kind), INT)[0])
            out[column] = pc.if_else(never, 0, known)
        gpus, _ = mapped(tres, words.gpus_of_tres, INT)
        if "alloctres" not in rows.columns and "allocgres" in rows.columns:
            gpus, _ = mapped(rows.text("allocgres"), words.gpus_of_gres, INT)
            self._counts["allocgres"] += 1
        self._tres_seen = self._tres_seen or gpus.null_count < rows.n
        self._gpus_seen = self._gpus_seen or bool(pc.max(gpus).as_py())
        out["n_gpus"] = pc.if_else(never, 0, gpus)

    def _without_repeats(self, table: pa.Table) -> tuple[pa.Table, int]:
        """Of records of one key the last, unless they started apart (a job that was resized)."""
        ids = table.column("attempt_id")
        if pc.count_distinct(ids).as_py() == len(ids):
            return table, 0
        names = ids.to_pylist()
        starts = table.column("start").to_pylist()
        groups: dict[str, dict[Any, int]] = {}
        for index, name in enumerate(names):
            groups.setdefault(name, {})[starts[index]] = index
        keep: list[int] = []
        moved: list[int] = []
        for by_start in groups.values():
            started = sorted((start, at) for start, at in by_start.items() if start is not None)
            if not started:
                keep += by_start.values()
                continue
            keep += [at for _, at in started]
            moved += [at for _, at in started[1:]]
        self._counts["resized"] += len(moved)
        if moved:
            late = np.zeros(len(names), dtype=bool)
            late[moved] = True
            submit = pc.if_else(
                pa.array(late),
                table.column("start").combine_chunks(),
                table.column("submit").combine_chunks(),
            )
            new_ids = _attempt_ids(
                table.column("cluster").combine_chunks(),
                table.column("job_id").combine_chunks(),
                submit,
            )
            table = table.set_column(ATTEMPTS.names.index("submit"), "submit", submit)
            table = table.set_column(ATTEMPTS.names.index("attempt_id"), "attempt_id", new_ids)
        kept = table.take(pa.array(sorted(keep)))
        return kept, len(names) - len(keep)

    def _allocations(self, table: pa.Table) -> pa.Table:
        started = pc.and_(table.column("start").is_valid(), table.column("node_list").is_valid())
        knows = pc.and_(started, table.column("elapsed_s").is_valid())
        self._counts["no-elapsed"] += (pc.sum(started).as_py() or 0) - (pc.sum(knows).as_py() or 0)
        rows = table.filter(knows)
        if not rows.num_rows:
            return ALLOCATIONS.empty()
        lists = rows.column("node_list").combine_chunks().dictionary_encode()
        names = [self._nodes(text) or () for text in lists.dictionary.to_pylist()]
        sizes = np.array([len(each) for each in names], dtype=np.int64)
        firsts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        flat = pa.array([name for each in names for name in each], TEXT)
        codes = lists.indices.to_numpy().astype(np.int64)
        counts = sizes[codes]
        self._differ(rows, counts)
        row_of = np.repeat(np.arange(len(codes)), counts)
        within = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
        of_row = pa.array(row_of)
        shared = rows.select(
            [
                "cluster",
                "attempt_id",
                "start",
                "end",
                "elapsed_s",
                "n_gpus",
                "source",
                "file_id",
                "line",
            ]
        ).take(of_row)
        share = pc.divide(
            shared.column("n_gpus").cast(FLOAT, safe=False),
            pa.array(counts[row_of], INT).cast(FLOAT),
        )
        out = {name: shared.column(name) for name in shared.column_names}
        out["n_gpus"] = share
        out["node"] = flat.take(pa.array(firsts[codes][row_of] + within))
        return pa.table([out[name] for name in ALLOCATIONS.names], names=list(ALLOCATIONS.names))

    def _differ(self, rows: pa.Table, counts: npt.NDArray[np.int64]) -> None:
        said = rows.column("n_nodes").combine_chunks()
        self._counts["differ"] += pc.sum(pc.not_equal(said, pa.array(counts))).as_py() or 0

    def notes(self) -> tuple[str, ...]:
        """What was assumed over all that was converted, one sentence each."""
        count = self._counts
        found = [
            text
            for key, text in (
                (
                    "submit",
                    f"{count['submit']} records have no submit time; their start stands for it",
                ),
                (
                    "resized",
                    f"{count['resized']} records repeat a submit time with a later start "
                    "(resized jobs); their start stands for their submit time",
                ),
                ("repeated", f"{count['repeated']} records repeat an earlier one; the last counts"),
                ("eligible", f"{count['eligible']} eligible times are unreadable and left empty"),
                (
                    "optional",
                    f"{count['optional']} limits, priorities and the like are unreadable "
                    "and left empty",
                ),
                (
                    "cluster",
                    f"{count['cluster']} records name no cluster; taken as "
                    f"{DEFAULT_CLUSTER} (--cluster names it)",
                ),
                (
                    "no-node-list",
                    "no NodeList field: attempts have no nodes, exposure by node is not known",
                ),
                (
                    "no-elapsed",
                    f"{count['no-elapsed']} attempts have nodes but no elapsed time; "
                    "they add no exposure",
                ),
                (
                    "differ",
                    f"{count['differ']} attempts say another number of nodes than their "
                    "node list holds; the list counts for exposure",
                ),
                ("allocgres", "GPUs are taken from AllocGRES, as the log has no AllocTRES"),
                ("steps", f"{count['steps']} job steps are folded into their jobs"),
            )
            if count[key]
        ]
        if self._tres_seen and not self._gpus_seen:
            found.append(
                "no record has GPUs: either none were used, or the cluster does not account them "
                "(AccountingStorageTRES=gres/gpu)"
            )
        return (*found, *self._times.notes())


def rows_from_sacct_fields(
    reader: AttemptReader, records: Sequence[Mapping[str, Any]], lines: Sequence[int]
) -> Converted:
    """Rows of dictionaries of sacct fields, such as `{"JobID": "7", "State": "COMPLETED", ...}`.

    Args:
        reader: one per file, so that its notes cover the whole file.
        records: field names in any case; values as sacct prints them; None stands for "".
            Times may be ISO 8601 with or without offset, or seconds since 1970.
        lines: the line of each record.

    Raises:
        SourceError: no record holds the fields that are needed.
        UsageError: the times have no zone and the user gave none.
    """
    lowered = [{str(k).lower(): v for k, v in record.items()} for record in records]
    names = sorted({name for record in lowered for name in record})
    if lowered:
        need_fields(names, "sacct fields")
    columns = {
        name: pa.array([_as_text(record.get(name)) for record in lowered], TEXT)
        for name in names
        if name in USED
    }
    return reader.convert(columns, np.asarray(lines, dtype=np.int64))


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _count_of(kind: str) -> Callable[[str], int | None]:
    return lambda text: words.tres_count(text, kind)


def _attempt_ids(cluster: pa.Array, job_id: pa.Array, submit: pa.Array) -> pa.Array:
    # the text of base.attempt_id, by whole columns
    micros = submit.cast(INT).fill_null(0).to_numpy()
    none = submit.is_null().to_numpy(zero_copy_only=False)
    seconds = pa.array(micros // 1_000_000, INT, mask=none)
    stamp = pc.replace_substring(
        seconds.cast(pa.timestamp("s")).cast(TEXT), " ", "T", max_replacements=1
    )
    key = pc.binary_join_element_wise(cluster, job_id, "/")
    return pc.binary_join_element_wise(key, pc.binary_join_element_wise(stamp, "Z", ""), "@")
