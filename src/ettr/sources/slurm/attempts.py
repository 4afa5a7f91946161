"""Columns of sacct texts -> `attempts` and `allocations`.

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
from ettr.sources.limits import LONGEST_S, MOST_GPUS_PER_NODE, MOST_NODES
from ettr.sources.log_rows import LogRows
from ettr.sources.node_lists import NodeLists
from ettr.sources.slurm import fields as words
from ettr.sources.slurm.job_fields import (
    ID_FIELDS,
    NEEDED,
    RESOURCE_FIELDS,
    TIME_FIELDS,
    USED,
    JobField,
)
from ettr.sources.slurm.times import (
    FLOAT,
    INT,
    TEXT,
    JobRecords,
    Mask,
    TimeColumns,
    mapped,
    matches,
)
from ettr.tables import ALLOCATIONS, ATTEMPTS, Kind
from ettr.tables.rows import DEFAULT_CLUSTER, UNNAMED_NOTE, Batch
from ettr.units import MICROSECONDS_PER_SECOND
from ettr.words import by_number

# records of jobs are wide; this many of them stay well under 200 MB
_BATCH_JOBS = 20_000


@dataclass(frozen=True, slots=True)
class Bad:
    """One record that is no attempt: its index among those given, a slug, and why in words."""

    index: int
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Converted:
    """The rows of some records, the bad records, and the numbers of the others.

    `folded` are steps within their jobs and earlier records of an attempt; `skipped` are steps
    whose job is not there.
    """

    attempts: pa.Table
    allocations: pa.Table
    bad: tuple[Bad, ...]
    folded: int
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
    """Turns records of one log into rows, batch by batch, and keeps what it assumed."""

    def __init__(self, source: str, file_id: str, options: ReadOptions, what: str) -> None:
        self._source, self._file_id = source, file_id
        self._cluster = options.cluster
        self._accelerators = options.accelerators or ()
        self._other_gres: Counter[str] = Counter()
        self._times = TimeColumns(options.timezone, what)
        self.node_lists = NodeLists()
        self._counts: Counter[str] = Counter()
        self._unreadable: Counter[str] = Counter()

    @property
    def assumed(self) -> tuple[Counter[str], ...]:
        """What was counted of what was assumed, for the reader of the whole log to `add`."""
        return self._other_gres, self._counts, self._unreadable, self._times.counts

    def add(self, assumed: tuple[Counter[str], ...]) -> None:
        """Count what a reader of a later block of the same log assumed."""
        for own, more in zip(self.assumed, assumed, strict=True):
            own.update(more)

    def convert(self, given: Mapping[str, pa.Array], lines: npt.NDArray[np.int64]) -> Converted:
        """Records as columns of strings (by lower-case field name) -> rows.

        Steps must follow their job, as sacct prints them; they become its `step_state`.

        Raises:
            UsageError: the times have no zone and the user gave none.
        """
        ids = given["jobid"] if "jobid" in given else given["jobidraw"]
        is_job = matches(ids, words.JOB_ID)
        is_step = np.zeros_like(is_job) if is_job.all() else matches(ids, words.STEP_ID)
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
        records = JobRecords(columns, len(job_at), self._times, self.node_lists, self._accelerators)
        table = self._attempts(records, steps, lines[job_at])
        bad += [Bad(int(job_at[i]), reason, detail) for i, reason, detail in records.bad]
        if records.is_bad.any():
            table = table.filter(pa.array(~records.is_bad))
        table, repeated = self._without_repeats(table)
        self._counts["repeated"] += repeated
        orphans = int(is_step.sum()) - steps.folded
        self._counts["steps"] += steps.folded
        self._counts["orphans"] += orphans
        allocations, without_elapsed, differs = _allocations(table, self.node_lists)
        self._counts["no elapsed time"] += without_elapsed
        self._counts["node count differs"] += differs
        return Converted(table, allocations, tuple(bad), steps.folded + repeated, orphans)

    def _attempts(
        self, records: JobRecords, steps: Steps, lines: npt.NDArray[np.int64]
    ) -> pa.Table:
        n = records.n
        nothing = {kind: pa.nulls(n, kind.arrow) for kind in Kind}
        out = {column.name: nothing[column.kind] for column in ATTEMPTS}
        self._parse_ids(records, out)
        out["step_state"] = steps.state
        if "derivedexitcode" not in records.columns:
            out["derived_exit_code"], out["derived_exit_signal"] = steps.code, steps.signal
        self._parse_times(records, out)
        self._parse_resources(records, out)
        out["attempt_id"] = attempt_ids(out["cluster"], out["job_id"], out["submit"])
        out["source"] = pa.repeat(self._source, n)
        out["file_id"] = pa.repeat(self._file_id, n)
        out["line"] = pa.array(lines, INT)
        return pa.table([out[name] for name in ATTEMPTS.names], names=list(ATTEMPTS.names))

    def _parse(
        self, records: JobRecords, entries: Sequence[JobField], out: dict[str, pa.Array]
    ) -> None:
        """Fill columns by the rows of a table of fields."""
        for entry in entries:
            if entry.field not in records.columns or entry.unless in records.columns:
                continue
            known = out[entry.column]
            if not entry.reject and not known.null_count:
                continue
            found, wrong = entry.parse(records, entry.field)
            if entry.reject:
                records.reject(wrong, entry.reject, entry.field)
            else:
                self._unreadable[entry.column] += int(wrong.sum())
            is_first = known.null_count == len(known)
            out[entry.column] = found if is_first else pc.coalesce(known, found)

    def _parse_ids(self, records: JobRecords, out: dict[str, pa.Array]) -> None:
        given_ids = records.columns.get("jobid", records.columns.get("jobidraw"))
        ids = _with_parts(records, given_ids)
        out["job_id"] = ids
        for column, mark in (("array_job_id", "_"), ("het_job_id", "+")):
            member = pc.match_substring(ids, mark)
            if pc.any(member).as_py():
                some = pc.if_else(member, ids, None)
                out[column] = pc.replace_substring_regex(
                    some, r"\+.*$" if mark == "+" else r"[_+].*$", ""
                )
        cluster = records.text("cluster")
        if self._cluster:
            cluster = pa.repeat(self._cluster, records.n)
        elif cluster.null_count:
            self._counts["cluster"] += cluster.null_count
            cluster = cluster.fill_null(DEFAULT_CLUSTER)
        out["cluster"] = cluster
        self._parse(records, ID_FIELDS, out)
        if ids is not given_ids:
            out["job_id_raw"] = pc.coalesce(out["job_id_raw"], given_ids)
        records.reject(out["state"].is_null(), "unknown-state", "state")

    def _parse_times(self, records: JobRecords, out: dict[str, pa.Array]) -> None:
        self._parse(records, TIME_FIELDS, out)
        self._settle_times(records, out)
        lacks = out["submit"].null_count
        if lacks:
            out["submit"] = pc.coalesce(out["submit"], out["start"])
            none = out["submit"].is_null().to_numpy(zero_copy_only=False)
            self._counts["no submit time"] += lacks - int(none.sum())
            records.reject(none, "no-submit-time", "submit")
        elapsed = out["elapsed_s"]
        if elapsed.null_count and out["end"].null_count < records.n:
            span = pc.subtract(out["end"].cast(INT), out["start"].cast(INT))
            span_s = pc.divide(span.cast(FLOAT, safe=False), MICROSECONDS_PER_SECOND)
            elapsed = pc.coalesce(elapsed, span_s)
        absurd = pc.or_(pc.less(elapsed, 0), pc.greater(elapsed, LONGEST_S)).fill_null(False)
        records.reject(absurd, "bad-duration", "elapsedraw")
        out["elapsed_s"] = pc.if_else(out["start"].is_valid(), elapsed, None)

    @staticmethod
    def _settle_times(records: JobRecords, out: dict[str, pa.Array]) -> None:
        """Local times that occur twice, by the job's runtime and the order of its times."""
        if not records.times.folds:
            return
        held_s = pc.add(out["elapsed_s"], pc.coalesce(out["suspended_s"], 0.0))
        names = ("submit", "eligible", "start", "end")
        out.update(records.times.settle({name: out[name] for name in names}, held_s))

    def _parse_resources(self, records: JobRecords, out: dict[str, pa.Array]) -> None:
        self._parse(records, RESOURCE_FIELDS, out)
        has_list = "nodelist" in records.columns
        self._counts["no node list"] += 0 if has_list else records.n
        has_tres = "alloctres" in records.columns
        self._counts["allocgres"] += not has_tres and "allocgres" in records.columns
        listed = records.distinct("alloctres" if has_tres else "allocgres")
        self._counts["cut lists"] += records.n_cut_lists
        self._count_other_gres(listed)
        kinds, _ = mapped(listed, words.parts_of_gpus, TEXT)
        for found in pc.value_counts(kinds.drop_null()).to_pylist():
            self._counts[found["values"]] += found["counts"]
        gpus = out["n_gpus"]
        self._counts["has tres"] += gpus.null_count < records.n
        self._counts["has gpus"] += bool(pc.max(gpus).as_py())
        self._reject_absurd(records, out)
        # what ran held nodes, though the log may keep their names to itself
        ran = pc.and_(out["start"].is_valid(), pc.not_equal(out["elapsed_s"], 0.0).fill_null(True))
        out["n_nodes"] = pc.if_else(
            pc.and_(ran, pc.equal(out["n_nodes"], 0).fill_null(False)), None, out["n_nodes"]
        )
        never = pc.and_(pc.and_(out["node_list"].is_null(), has_list), pc.invert(ran))
        for column in ("n_nodes", "n_cpus", "n_gpus"):
            out[column] = pc.if_else(never, 0, out[column])

    def _count_other_gres(self, listed: pa.DictionaryArray) -> None:
        """Count the attempts that hold generic resources of other names."""
        for found in pc.value_counts(listed.drop_null()).to_pylist():
            for name in words.other_gres(found["values"], self._accelerators):
                self._other_gres[name] += found["counts"]

    def _reject_absurd(self, records: JobRecords, out: dict[str, pa.Array]) -> None:
        """Reject records with more nodes or GPUs than there can be."""
        n_nodes = out["n_nodes"]
        records.reject(pc.greater(n_nodes, MOST_NODES).fill_null(False), "bad-number", "nnodes")
        most = pc.coalesce(n_nodes, pa.scalar(MOST_NODES, INT))
        most = pc.multiply(pc.max_element_wise(most, 1), MOST_GPUS_PER_NODE)
        gpus = pc.greater(out["n_gpus"], most).fill_null(False)
        records.reject(gpus, "bad-gpu-count", "alloctres")
        asked = out["requested_gpus"]
        above = pc.greater(asked, MOST_GPUS_PER_NODE * MOST_NODES).fill_null(False)
        self._unreadable["requested_gpus"] += pc.sum(above).as_py() or 0
        out["requested_gpus"] = pc.if_else(above, None, asked)
        named = pc.if_else(pc.greater(n_nodes, 0), pc.add(pc.multiply(n_nodes, 2), 64), MOST_NODES)
        longer = pc.greater(records.n_listed, named).fill_null(False)
        records.reject(longer, "bad-node-list", "nodelist")

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
            new_ids = attempt_ids(
                table.column("cluster").combine_chunks(),
                table.column("job_id").combine_chunks(),
                submit,
            )
            table = table.set_column(ATTEMPTS.names.index("submit"), "submit", submit)
            table = table.set_column(ATTEMPTS.names.index("attempt_id"), "attempt_id", new_ids)
        kept = table.take(pa.array(sorted(keep)))
        return kept, len(names) - len(keep)

    def notes(self) -> tuple[str, ...]:
        """What was assumed over all that was converted, one sentence each."""
        found = [
            by_number(sentence, self._counts[key])
            for key, sentence in _NOTES.items()
            if self._counts[key]
        ]
        found += [
            by_number(f"{{n}} [value|values] of {column} [is|are] unreadable and left empty", n)
            for column, n in self._unreadable.items()
            if n
        ]
        if self._other_gres:
            found.append(words.other_gres_note(self._other_gres, "attempt"))
        elif self._counts["has tres"] and not self._counts["has gpus"]:
            found.append(
                "no record has GPUs: either none were used, or the cluster does not account them "
                "(AccountingStorageTRES=gres/gpu)"
            )
        return (*found, *self._times.notes())


def _with_parts(records: JobRecords, ids: pa.Array) -> pa.Array:
    """Ids where a part of a heterogeneous job is 100+1, also where columns say so, not the id."""
    for kind in ("het", "pack"):
        whole, offset = (records.text(f"{kind}job{name}") for name in ("id", "offset"))
        if whole.null_count == len(whole) or offset.null_count == len(offset):
            continue
        is_part = pc.and_(
            pc.match_substring_regex(whole, r"^[1-9]\d*$"),
            pc.match_substring_regex(offset, r"^\d+$"),
        )
        plain = pc.match_substring_regex(ids, r"^\d+$")
        named = pc.binary_join_element_wise(whole, offset, "+")
        ids = pc.if_else(pc.and_(is_part, plain).fill_null(False), named, ids)
    return ids


_NOTES = {
    "cut lists": "{n} [node list is|node lists are] cut off: [its attempt is|their attempts are] "
    "kept with [its|their] counts, on nodes that are not known",
    "no submit time": "{n} [record has|records have] no submit time; [its|their] start time is "
    "used for it",
    "resized": "{n} [record repeats|records repeat] a submit time with a later start (resized "
    "jobs); [its|their] start time is used for [its|their] submit time",
    "repeated": "{n} [record repeats|records repeat] an earlier one; the last counts",
    "cluster": f"{{n}} [record names|records name] no cluster; {UNNAMED_NOTE}",
    "no node list": "no NodeList field: attempts have no nodes, so exposure by node is unknown",
    "no elapsed time": "{n} [attempt has|attempts have] nodes but no elapsed time; "
    "[it adds|they add] no exposure",
    "node count differs": "{n} [attempt has|attempts have] a number of nodes other than "
    "the length of [its|their] node list; the list counts for exposure",
    "mig": "{n} [attempt holds|attempts hold] parts of GPUs (MIG); each part counts as a GPU",
    "shares": "{n} [attempt holds|attempts hold] shares of GPUs (gres/shard, gres/mps) and no GPU; "
    "[it counts|they count] as using none",
    "allocgres": "GPUs are taken from AllocGRES, as the log has no AllocTRES",
    "steps": "{n} job [step is folded into its job|steps are folded into their jobs]",
    "orphans": "{n} job [step does not follow its job|steps do not follow their job] in this log; "
    "[it was|they were] skipped",
}


def rows_from_sacct_fields(
    reader: AttemptReader, records: Sequence[Mapping[str, Any]], lines: Sequence[int]
) -> Converted:
    """Rows of dictionaries of sacct fields, such as `{"JobID": "7", "State": "COMPLETED", ...}`.

    Args:
        records: field names in any case; values as sacct prints them; None is read as "". Times
            may be ISO 8601 with or without offset, or seconds since 1970.

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


class FieldRecords:
    """Jobs of one log as sacct's fields, until they are made rows.

    Args:
        raw: what a reject shows of a record.
    """

    def __init__(self, rows: LogRows, raw: Callable[[Any], str] = str) -> None:
        self._rows, self._raw = rows, raw
        self._reader = AttemptReader(
            rows.source, rows.origin.file_id, rows.options, str(rows.origin)
        )
        self._waiting: dict[str, list[tuple[int, Mapping[str, Any], Any]]] = {}

    def add(self, line: int, fields: Mapping[str, Any], record: object, kind: str = "") -> None:
        """Take a job; those of one kind have the same fields."""
        self._waiting.setdefault(kind, []).append((line, fields, record))

    @property
    def is_full(self) -> bool:
        """Whether it is time to hand out a batch."""
        return sum(map(len, self._waiting.values())) >= _BATCH_JOBS or self._rows.is_full

    def batch(self, *, is_last: bool = False) -> Batch:
        """The rows of what was taken since the last batch, and what else the log has collected."""
        made: dict[str, list[pa.Table]] = {ATTEMPTS.name: [], ALLOCATIONS.name: []}
        waiting, self._waiting = self._waiting, {}
        for records in waiting.values():
            lines = [line for line, _, _ in records]
            try:
                found = rows_from_sacct_fields(
                    self._reader, [fields for _, fields, _ in records], lines
                )
            except SourceError as error:
                for line, _, record in records:
                    self._rows.reject(line, "missing-field", str(error), self._raw(record))
                continue
            of_line = {lines[bad.index]: bad for bad in reversed(found.bad)}
            for line, bad in sorted(of_line.items()):
                record = records[bad.index][2]
                self._rows.reject(line, bad.reason, bad.detail, self._raw(record))
            self._rows.count_skipped(found.skipped)
            # a job whose id is bad takes its steps along: one reject
            self._rows.count_folded(found.folded + len(found.bad) - len(of_line))
            made[ATTEMPTS.name].append(found.attempts)
            made[ALLOCATIONS.name].append(found.allocations)
        for sentence in self._reader.notes() if is_last and made[ATTEMPTS.name] else ():
            self._rows.note(sentence)
        return self._rows.batch(
            **{name: pa.concat_tables(parts) for name, parts in made.items() if parts}
        )


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8")


_OF_A_LOG = frozenset({"cluster", "source", "file_id"})


def _is_one(column: pa.ChunkedArray) -> bool:
    ends = pc.min_max(column)
    return bool(ends["min"] == ends["max"])


def _allocations(attempts: pa.Table, node_lists: NodeLists) -> tuple[pa.Table, int, int]:
    """The nodes of some attempts, which share its GPUs equally.

    And how many attempts have nodes but no elapsed time, and how many another number of nodes.
    """
    started = pc.and_(attempts.column("start").is_valid(), attempts.column("node_list").is_valid())
    knows = pc.and_(started, attempts.column("elapsed_s").is_valid())
    without_elapsed = (pc.sum(started).as_py() or 0) - (pc.sum(knows).as_py() or 0)
    at = np.flatnonzero(knows.to_numpy())
    if not len(at):
        return ALLOCATIONS.empty(), without_elapsed, 0
    lists = attempts.column("node_list").take(pa.array(at)).combine_chunks().dictionary_encode()
    placed = node_lists.placed(lists.dictionary)
    codes = lists.indices.to_numpy().astype(np.int64)
    counts = placed.counts[codes]
    differs = pc.not_equal(attempts.column("n_nodes").take(pa.array(at)), pa.array(counts))
    nodes = placed.of_lists(codes)
    row_of = pa.array(np.repeat(at, counts))
    share = np.ones(attempts.num_rows)
    share[at] = counts
    gpus = pc.divide(attempts.column("n_gpus").cast(FLOAT, safe=False), pa.array(share))
    given = {name: attempts.column(name) for name in ALLOCATIONS.names if name != "node"}
    out = {
        # texts that all rows share are not gathered one by one
        name: pa.repeat(column[0], len(nodes))
        if name in _OF_A_LOG and _is_one(column)
        else column.take(row_of)
        for name, column in (given | {"n_gpus": gpus}).items()
    }
    out["node"] = placed.names.take(pa.array(nodes))
    made = pa.table([out[name] for name in ALLOCATIONS.names], schema=ALLOCATIONS.arrow_schema)
    return made, without_elapsed, pc.sum(differs).as_py() or 0


def attempt_ids(cluster: pa.Array, job_id: pa.Array, submit: pa.Array) -> pa.Array:
    """The text of `ettr.tables.rows.attempt_id`, by whole columns."""
    micros = submit.cast(INT).fill_null(0).to_numpy()
    none = submit.is_null().to_numpy(zero_copy_only=False)
    seconds = pa.array(micros // 1_000_000, INT, mask=none)
    stamp = pc.replace_substring(
        seconds.cast(pa.timestamp("s")).cast(TEXT), " ", "T", max_replacements=1
    )
    return pc.binary_join_element_wise(cluster, "/", job_id, "@", stamp, "Z", "")


@dataclass(frozen=True, slots=True)
class Steps:
    """What the steps of each job say of it; null where the log holds none.

    `folded` is the number of steps that follow their job; others say nothing of any.
    """

    state: pa.Array
    code: pa.Array
    signal: pa.Array
    folded: int = 0

    @classmethod
    def fold(
        cls, given: Mapping[str, pa.Array], ids: pa.Array, is_job: Mask, is_step: Mask
    ) -> Steps:
        """Fold the steps among some records into the jobs that they follow."""
        n_jobs = int(is_job.sum())
        if not is_step.any() or not n_jobs:
            return cls(pa.nulls(n_jobs, TEXT), pa.nulls(n_jobs, INT), pa.nulls(n_jobs, INT))
        at = np.flatnonzero(is_step)
        job_number = np.cumsum(is_job) - 1
        job_at = np.flatnonzero(is_job)
        parent = job_number[at]
        own = pc.replace_substring_regex(ids.take(pa.array(at)), r"\..*$", "")
        same = pc.equal(own, ids.take(pa.array(job_at[np.maximum(parent, 0)])))
        is_own = same.to_numpy(zero_copy_only=False) & (parent >= 0)
        at, parent = at[is_own], parent[is_own]
        ranks, _ = mapped(given["state"].take(pa.array(at)), _rank, INT)
        worst = np.full(n_jobs, 99, dtype=np.int64)
        np.minimum.at(worst, parent, ranks.fill_null(99).to_numpy())
        names = pa.array([*words.STEP_RANK], TEXT)
        state = names.take(pa.array(worst, mask=worst >= len(names)))
        code, signal = _highest_exit(given, at, parent, ids, n_jobs)
        return cls(state, code, signal, len(at))


def _highest_exit(
    given: Mapping[str, pa.Array],
    at: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
    ids: pa.Array,
    n_jobs: int,
) -> tuple[pa.Array, pa.Array]:
    """Highest exit code of each job's numbered steps, as Slurm's DerivedExitCode has it."""
    if "exitcode" not in given:
        return pa.nulls(n_jobs, INT), pa.nulls(n_jobs, INT)
    numbered = matches(ids.take(pa.array(at)), r"\.\d+$")
    at, parent = at[numbered], parent[numbered]
    both, _ = mapped(given["exitcode"].take(pa.array(at)), _exit_in_one, INT)
    highest = np.full(n_jobs, -1, dtype=np.int64)
    np.maximum.at(highest, parent, both.fill_null(-1).to_numpy())
    none = highest < 0
    return pa.array(highest // 1000, INT, mask=none), pa.array(highest % 1000, INT, mask=none)


def _exit_in_one(text: str) -> int | None:
    code, signal = words.exit_code(text)
    return None if code is None else 1000 * code + min(signal or 0, 999)


def _rank(text: str) -> int | None:
    return words.STEP_RANK.get(words.state_and_user(text)[0])
