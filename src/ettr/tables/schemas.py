"""The tables that every stage reads and writes.

Raw logs become these tables; nothing downstream knows a log format. Times are UTC microseconds.
Identifiers are strings. Unknown is null, never 0, -1 or "", and a column may be null only where its
`null` text says what null means. The reference page of the tables is generated from this module.
"""

from __future__ import annotations

from dataclasses import dataclass

from ettr.tables.columns import Column, Keeps, Kind, Table


def _string(name: str, means: str, null: str = "", keeps: Keeps = Keeps.NEVER) -> Column:
    return Column(name, Kind.STRING, means, null, keeps)


def _int(name: str, means: str, null: str = "", keeps: Keeps = Keeps.NEVER) -> Column:
    return Column(name, Kind.INT, means, null, keeps)


def _float(name: str, means: str, null: str = "", keeps: Keeps = Keeps.NEVER) -> Column:
    return Column(name, Kind.FLOAT, means, null, keeps)


def _time(name: str, means: str, null: str = "") -> Column:
    return Column(name, Kind.TIME, means, null)


_CLUSTER = _string("cluster", "the cluster's name")
_NODE = _string("node", "the node's name as its scheduler writes it")
_PROVENANCE = (
    _string("source", "name of the source that read the row, such as `slurm-sacct`"),
    _string("file_id", "key of the ingested file in `files`"),
    _int(
        "line",
        "line of that file (1 is the first) on which the record begins; "
        "for JSON documents the record's place, from 1",
    ),
)

NODES = Table(
    "nodes",
    "one machine over its time in service",
    ("cluster", "node"),
    (
        _CLUSTER,
        _NODE,
        _int("n_gpus", "GPUs in the node", "not known", keeps=Keeps.ALWAYS),
        _string("gpu_type", "GPU model as the scheduler names it", "not known", keeps=Keeps.ALWAYS),
        _int("n_cpus", "CPUs that the scheduler gives out", "not known", keeps=Keeps.ALWAYS),
        _int("memory_bytes", "main memory", "not known", keeps=Keeps.ALWAYS),
        _string(
            "partitions", "partitions of the node, comma-separated", "not known", keeps=Keeps.ALWAYS
        ),
        _string(
            "hardware_group",
            "nodes of one kind, for comparisons",
            "not grouped",
            keeps=Keeps.ALWAYS,
        ),
        _string("rack", "rack, block or NVLink domain", "not known", keeps=Keeps.ALWAYS),
        _string("pod", "pod: the switch above its leaf switch", "not known", keeps=Keeps.ALWAYS),
        _string("switch", "leaf switch", "not known", keeps=Keeps.ALWAYS),
        _string(
            "other_names",
            "its host name and address, comma-separated, where they are not its name",
            "not known, or none",
            keeps=Keeps.ALWAYS,
        ),
        _time("in_service_from", "when the node came into service", "before the observed time"),
        _time("in_service_to", "when the node left service", "still in service"),
        *_PROVENANCE,
    ),
)

ATTEMPTS = Table(
    "attempts",
    "one run of a scheduler job on one set of nodes; a requeue is a new attempt",
    ("cluster", "job_id", "submit"),
    (
        _CLUSTER,
        _string("attempt_id", "the key in one string: cluster/job_id@submit"),
        _string("job_id", "the job's id as the scheduler shows it: 17, 7_1 (array), 30+1 (het)"),
        _string(
            "job_id_raw",
            "the id in the scheduler's own numbering",
            "the log has none",
            keeps=Keeps.ALWAYS,
        ),
        _string(
            "array_job_id", "id of the job array", "not a member of an array", keeps=Keeps.ALWAYS
        ),
        _string(
            "het_job_id", "id of the heterogeneous job", "not a part of one", keeps=Keeps.ALWAYS
        ),
        _string("name", "job name", "the log has none", keeps=Keeps.ALWAYS),
        _string("user", "owner", "the log has none", keeps=Keeps.ALWAYS),
        _string("account", "account charged", "the log has none", keeps=Keeps.ALWAYS),
        _string("partition", "partition", "the log has none", keeps=Keeps.ALWAYS),
        _string("qos", "quality of service", "the log has none", keeps=Keeps.ALWAYS),
        _string("state", "base state, such as COMPLETED or NODE_FAIL; no suffix"),
        _string(
            "cancelled_by",
            "user id that cancelled it",
            "not cancelled, or not known",
            keeps=Keeps.SAME_STATE,
        ),
        _int(
            "exit_code", "exit code of the batch script", "the log has none", keeps=Keeps.SAME_END
        ),
        _int("exit_signal", "signal that ended it", "the log has none", keeps=Keeps.SAME_END),
        _int(
            "derived_exit_code",
            "highest exit code of its steps",
            "the log has none",
            keeps=Keeps.SAME_END,
        ),
        _int(
            "derived_exit_signal", "signal of that step", "the log has none", keeps=Keeps.SAME_END
        ),
        _string(
            "step_state",
            "worst end state among its steps, where the log holds steps",
            "no steps in the log",
            keeps=Keeps.SAME_END,
        ),
        _time("submit", "when it was submitted or requeued"),
        _time("eligible", "when it might have started", "never eligible, or the log has none"),
        _time("start", "when it started", "has not started"),
        _time("end", "when it ended", "has not ended"),
        _float(
            "elapsed_s",
            "seconds run, without suspended time",
            "has not started, or the log does not say",
            keeps=Keeps.SAME_END,
        ),
        _float("suspended_s", "seconds suspended", "the log has none", keeps=Keeps.SAME_END),
        _float(
            "time_limit_s", "its time limit", "unlimited, or the log has none", keeps=Keeps.ALWAYS
        ),
        _int(
            "n_nodes",
            "nodes allocated (0: it never had any)",
            "the log has none",
            keeps=Keeps.SAME_END,
        ),
        _int("n_cpus", "CPUs allocated", "the log has none", keeps=Keeps.SAME_END),
        _int(
            "n_gpus",
            "GPUs allocated over all nodes (0: none)",
            "the log does not say",
            keeps=Keeps.SAME_END,
        ),
        _string(
            "gpu_type",
            "GPU model as the scheduler names it; several are comma-separated",
            "no GPUs, or the log does not say",
            keeps=Keeps.SAME_END,
        ),
        _int(
            "requested_nodes",
            "nodes asked for (at least)",
            "the log does not say",
            keeps=Keeps.ALWAYS,
        ),
        _int(
            "requested_gpus",
            "GPUs asked for over all nodes (0: none)",
            "the log does not say",
            keeps=Keeps.ALWAYS,
        ),
        _string(
            "node_list", "its nodes as the log writes them", "never had nodes", keeps=Keeps.SAME_END
        ),
        _string(
            "excluded_nodes",
            "nodes that its owner excluded, compact as the scheduler writes lists: n[1-2],n7",
            "none, or the log does not say",
            keeps=Keeps.ALWAYS,
        ),
        _int("priority", "scheduler priority", "the log has none"),
        _string("reason", "last pending reason; never why it ended", "none"),
        _int(
            "restarts", "how often it had been restarted", "the log has none", keeps=Keeps.SAME_END
        ),
        _string(
            "failed_node",
            "node whose failure ended it, as the log itself says",
            "the log does not say",
            keeps=Keeps.SAME_STATE,
        ),
        _string("comment", "comment of the owner", "none", keeps=Keeps.ALWAYS),
        _string("work_dir", "work folder", "the log has none", keeps=Keeps.ALWAYS),
        _string(
            "submit_line", "the command that submitted it", "the log has none", keeps=Keeps.ALWAYS
        ),
        _string(
            "dependency",
            "what it waited for, as the scheduler writes it: afterany:15, singleton",
            "nothing, or the log does not say",
            keeps=Keeps.ALWAYS,
        ),
        *_PROVENANCE,
    ),
)

ALLOCATIONS = Table(
    "allocations",
    "one node within one attempt; the exposure, exactly",
    ("attempt_id", "node"),
    (
        _CLUSTER,
        _string("attempt_id", "the attempt"),
        _NODE,
        _time("start", "when the attempt started"),
        _time("end", "when the attempt ended", "still running when the log was taken"),
        _float("elapsed_s", "seconds the attempt ran on the node"),
        _float(
            "n_gpus",
            "its GPUs on this node (an equal share of the attempt's)",
            "not known",
            keeps=Keeps.ALWAYS,
        ),
        *_PROVENANCE,
    ),
)

NODE_STATES = Table(
    "node_states",
    "one interval of one node in one scheduler state, with its reason",
    ("cluster", "node", "start", "state"),
    (
        _CLUSTER,
        _NODE,
        _string("state", "base state: DOWN, DRAIN, MAINT, FAIL, POWERED_DOWN, ..."),
        _string("flags", "flags next to it, comma-separated, such as NOT_RESPONDING", "none"),
        _string("reason", "reason given, as written", "none given"),
        _string("user", "who set it", "not known"),
        _time("start", "from"),
        _time("end", "to", "still so when the log was taken"),
        *_PROVENANCE,
    ),
)

EVENTS = Table(
    "events",
    "one observation about a node, GPU, link or service",
    ("event_id",),
    (
        _string("event_id", "hash of its content, so that the same line twice is one event"),
        _CLUSTER,
        _string("node", "the node", "about a service, not a node"),
        _time("time", "when it was observed"),
        _time("time_end", "when it was over", "a point in time, or not known"),
        _string("check", "what observed it: xid, sxid, slurmctld, drain, or a check's name"),
        _string(
            "code",
            "the observation within that check: 79, NODE_FAIL, NHC2013, a fault type",
            "the check has no codes",
        ),
        _string(
            "severity",
            "ok, warning, critical or unknown, as the source says (unknown: the catalogue decides)",
        ),
        _string("entity_type", "GPU, PCI, NIC, LINK, ...", "the node as a whole"),
        _string("entity", "which one: PCI address, UUID, port", "the node as a whole"),
        _string("action", "what the source recommends", "nothing"),
        _string("job_id", "job concerned, as the source says", "none named"),
        _string("related_job_id", "the other job: for whom `job_id` was preempted", "none named"),
        _string("message", "the text, cut at 500 characters", "none"),
        *_PROVENANCE,
    ),
)

PROGRESS = Table(
    "progress",
    "one training-side event",
    ("run_id", "rank", "time", "event", "step"),
    (
        _string("run_id", "the training run"),
        _string("cluster", "cluster it ran on", "not recorded"),
        _string("job_id", "scheduler job it ran in", "not recorded"),
        _int("rank", "global rank that reports; 0 where one reports for all"),
        _time("time", "when the event was over"),
        _string("event", "start, step, save, restore, stall, restart or end"),
        _int(
            "step",
            "training step: done (step), saved (save), restored (restore), reached (others)",
            "the log does not say",
        ),
        _float("duration_s", "seconds that it held up the training loop", "a point in time"),
        _string("detail", "further facts as JSON", "none"),
        *_PROVENANCE,
    ),
)

INCIDENTS = Table(
    "incidents",
    "one incident of a ledger that people keep, with the hours lost as they state them",
    ("incident_id",),
    (
        _string("incident_id", "the ledger's own id, else a hash of the entry's content"),
        _string("cluster", "cluster that it concerns", "not stated"),
        _time("time", "when it began; midnight UTC of the day where only the day is stated"),
        _time("time_end", "when it was over", "not stated"),
        Column("day_only", Kind.BOOL, "whether only the day is stated, not the time"),
        _string("kind", "what happened, in the ledger's own words"),
        _float("lost_h", "hours lost by the run concerned, as stated", "not stated"),
        _float("lost_gpu_hours", "GPU-hours lost, as stated", "not stated"),
        _string("run", "the training run or job concerned", "not stated"),
        _string("node", "the node concerned", "not stated, or several"),
        _string("message", "further words, cut at 500 characters", "none"),
        *_PROVENANCE,
    ),
)

REDUNDANT_WORK = "redundant-work"
"""The kind of a row of `gates` that is no check: the share of a run that a probe shows idle."""

GATES = Table(
    "gates",
    "one check of what a training run made, and whether the run may go on",
    ("run", "step", "gate", "kind"),
    (
        _string("run", "the training run"),
        _int("step", "its training step", "not stated"),
        _string("gate", "the check: a grade rule, a query, a name"),
        _string("kind", "what it measures: grade, mass, redundant-work, ..."),
        _float("value", "what it found", "not stated"),
        _float("low", "lower end of `value`", "no lower end is known"),
        _float("high", "upper end of `value`", "no upper end is known"),
        Column("passed", Kind.BOOL, "whether the run may go on", "not decided, or nothing asked"),
        _float("gpu_hours", "what the check cost", "not measured"),
        _time("time", "when the check was made", "not stated"),
        _string("cluster", "cluster on which the run trained", "not stated"),
        _string("evidence", "further words, cut at 500 characters", "none"),
        *_PROVENANCE,
    ),
)

LOG_DAYS = Table(
    "log_days",
    "one node's log of kernel messages or health checks on one UTC day: it was arriving",
    ("cluster", "node", "day", "file_id"),
    (
        _CLUSTER,
        _NODE,
        _time("day", "midnight at which the UTC day begins"),
        _int("n_lines", "lines of that day in the file, whatever they say"),
        _string(
            "kinds",
            "whose lines the file holds of the node, on any day, comma-separated: aer, amd, "
            "filesystem, mce, network, nvidia",
            "none of these, or not looked for",
        ),
        *_PROVENANCE,
    ),
)

REJECTS = Table(
    "rejects",
    "one raw row that could not be read, and why",
    ("file_id", "line"),
    (
        _string("source", "the source that could not read it"),
        _string("file_id", "key of the ingested file in `files`"),
        _int("line", "line on which the record begins (1 is the first)"),
        _string("reason", "slug that rejects are counted by, such as `bad-timestamp`"),
        _string("detail", "what was wrong, in words"),
        _string("raw", "the row, cut at 500 characters"),
    ),
)

FILES = Table(
    "files",
    "one ingested file",
    ("file_id",),
    (
        _string("file_id", "hash of its bytes, its source and the options it was read with"),
        _string("name", "file name"),
        _string("source", "source that read it"),
        _int("size_bytes", "its size"),
        _int("rows_read", "records found in it"),
        _int("rows_rejected", "records that went to `rejects`"),
        _int(
            "rows_folded",
            "records that became part of another record's row, such as a job's steps, or that a "
            "later record of the same key replaced",
            "an older ettr read it and did not count them",
        ),
        _int("rows_skipped", "records that are no rows of ours by design, such as blank lines"),
        _int("reader", "version of the source's reader", "an older ettr read it: 1"),
        _string("timezone", "zone in which its local times were read", "it holds no local times"),
        _string("options", "the options it was read with, as JSON"),
        _string("notes", "assumptions made while reading it, one per line", "none"),
        _int("ingested", "order of ingestion in this store, from 1"),
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        NODES,
        ATTEMPTS,
        ALLOCATIONS,
        NODE_STATES,
        EVENTS,
        PROGRESS,
        INCIDENTS,
        GATES,
        LOG_DAYS,
        REJECTS,
        FILES,
    )
}

INTERRUPTIONS = Table(
    "interruptions",
    "an attempt that ended against its owner's wish",
    ("attempt_id",),
    (
        _CLUSTER,
        _string("attempt_id", "the attempt"),
        _string("job_id", "its job"),
        _string("state", "end state"),
        _string(
            "kind",
            "hardware-candidate, preemption, operator, or user-failure: the truth "
            "table of end states says which",
        ),
        _time("start", "when it started", "never started"),
        _time("end", "when it ended"),
        _float("elapsed_s", "seconds it had run; 0 where it never started", "the log does not say"),
        _int("n_nodes", "its nodes", "the log has none"),
        _int("n_gpus", "its GPUs", "the log does not say"),
    ),
)

FAILURES = Table(
    "failures",
    "an interruption that is a failure of the infrastructure, with its cause",
    ("attempt_id",),
    (
        _CLUSTER,
        _string("attempt_id", "the attempt"),
        _string("job_id", "its job"),
        _string("state", "end state"),
        _time("start", "when it started", "never started"),
        _time("end", "when it ended"),
        _float("elapsed_s", "seconds it had run; 0 where it never started", "the log does not say"),
        _int("n_nodes", "its nodes", "the log has none"),
        _int("n_gpus", "its GPUs", "the log does not say"),
        _string("node", "node blamed", "no single node can be blamed"),
        _string("symptom", "slug of the leading cause; `unattributed` where nobody can explain it"),
        _string("domain", "hardware, system, user, several joined by +, or unknown"),
        _string("confidence", "high, medium, low or none"),
        _string("causes", "all symptoms found, ranked, comma-separated", "unattributed"),
        _string("evidence", "event ids behind them, ranked, comma-separated", "unattributed"),
    ),
)


BLAME = Table(
    "blame",
    "a node's part of one failure; the weights of an attempt sum to one",
    ("cluster", "attempt_id", "node"),
    (
        _CLUSTER,
        _string("attempt_id", "the attempt that failed"),
        _string("node", "the node", "no node of the attempt is to blame"),
        _float("weight", "its part of the failure, from 0 to 1"),
        _string(
            "basis",
            "named: a log names the node; burst: what the nodes of a burst share; shared: divided "
            "by the model of lemons; workload: a user whose jobs fail far more often than those of "
            "others; nobody: no log names the attempt's nodes",
        ),
    ),
)

CAUSES_TABLE = Table(
    "causes",
    "an interruption, preemptions left out, and the probabilities of its causes, which sum to one",
    ("attempt_id",),
    (
        _CLUSTER,
        _string("attempt_id", "the attempt"),
        _string("job_id", "its job"),
        _string("user", "its owner", "the log has none"),
        _time("end", "when it ended"),
        _string("state", "end state"),
        _string(
            "evidence",
            "leading symptom, or a sign: node-failed, oom, operator, failed (nothing was seen)",
        ),
        _string("confidence", "that of `failures`", "it is not in `failures`"),
        _float("node_hardware", "probability that hardware of one of its nodes was the cause"),
        _float("shared", "that network, storage or another thing that nodes share was"),
        _float("system_software", "that software of the system was"),
        _float("user_program", "that the user's own program was"),
        _float("operator", "that an operator was"),
        _float("unknown", "that something else was"),
        _string("likeliest", "the cause of the highest probability"),
        _string("node", "likeliest culprit among its nodes", "no node is known"),
        _float("node_probability", "probability that the hardware of `node` was the cause"),
    ),
)


def _bounded(name: str, means: str, null: str) -> tuple[Column, ...]:
    """A number with its two ends."""
    return (
        _float(name, means, null),
        _float(f"{name}_low", f"lower end of `{name}`", "no lower end is known"),
        _float(f"{name}_high", f"upper end of `{name}`", "no upper end is known"),
    )


_RUN_TIME = "known from progress records alone"
RUNS = Table(
    "runs",
    "a training run over its requeues and resubmissions",
    ("cluster", "job_ids"),
    (
        _CLUSTER,
        _string("name", "name of its jobs", "the log has none"),
        _string("user", "whose it is", "the log has none"),
        _string("job_ids", "its jobs, comma-separated"),
        _int("jobs", "how many jobs"),
        _int("attempts", "how many attempts"),
        _int("interruptions", "attempts that ended against the owner's wish", _RUN_TIME),
        _int("failures", "those of them that the infrastructure caused", _RUN_TIME),
        _int("n_gpus", "GPUs of its largest attempt", "the log does not say"),
        _int("n_nodes", "nodes of its largest attempt", "the log does not say"),
        _time("first_eligible", "when it could first have started"),
        _time("end", "when its last attempt ended"),
        _string("last_state", "end state of its last attempt"),
        _float("wallclock_h", "hours in which it was queued or scheduled", _RUN_TIME),
        _float("queue_h", "hours in the queue", _RUN_TIME),
        _float("scheduled_h", "hours in which any attempt held nodes"),
        _float("suspended_h", "hours of those that it was suspended"),
        _float("between_h", "hours neither queued nor scheduled", _RUN_TIME),
        _float("gpu_hours", "GPU-hours held", "its GPUs are not known"),
        _string("basis", "progress: measured; assumed: a band over assumptions"),
        *_bounded("ettr_ratio", "productive over wallclock time", "cannot be known"),
        *_bounded("ettr_without_queue_ratio", "productive over scheduled time", "cannot be known"),
        *_bounded("productive_h", "productive hours", "cannot be known"),
        *_bounded("input_stall", "share of its training time that waited for data", "not timed"),
    ),
)

OUTAGES = Table(
    "outages",
    "one outage of one node while it was in service; overlapping states are one",
    ("cluster", "node", "start"),
    (
        _CLUSTER,
        _string("node", "the node"),
        _time("start", "when it began"),
        _time("end", "when it was over", "not over when the logs end"),
        _float("hours", "how long it lasted, or has lasted so far"),
        Column("is_planned", Kind.BOOL, "whether all its states are planned"),
        _string("reason_class", "class of its reason: the first that the taxonomy knows"),
        _string("reason", "its first reason as written", "none was given"),
    ),
)

NODE_SUMMARY = Table(
    "node_summary",
    "one node over the time of the logs",
    ("cluster", "node"),
    (
        _CLUSTER,
        _string("node", "the node"),
        _float("in_service_h", "hours in service", "no log says that it was in service"),
        _float("node_days", "days that jobs ran on it: its exposure", "no log holds jobs"),
        _int("failures", "failures that blame it", "no log holds jobs"),
        _float(
            "blame",
            "its weights of the table `blame`, summed: the failures that blame it, and its part of "
            "those that blame no single node",
            "no log holds jobs",
        ),
        _float(
            "expected_failures",
            "its exposure at the rate of failures blamed on nodes of its class",
            "nothing ran on any node",
        ),
        _float(
            "lost_gpu_hours",
            "what the failures that blame it lost, at most the cap each",
            "no log holds jobs, or it is not known of one",
        ),
        _int("unplanned_outages", "unplanned outages", "no log holds states of nodes"),
        _float("unplanned_h", "hours of them", "no log holds states of nodes"),
        _float("planned_h", "hours of planned outages", "no log holds states of nodes"),
    ),
)

DERIVED: dict[str, Table] = {
    table.name: table
    for table in (INTERRUPTIONS, FAILURES, BLAME, CAUSES_TABLE, RUNS, OUTAGES, NODE_SUMMARY)
}


# -- What is asked of all events: how many of a kind a day has, when those of a node came ----------
#
# A store of files keeps both for its large parts, so that a report does not read tens of millions
# of events for a few thousand numbers. Summaries of parts are summed to that of the whole.

CONTROLLER_CHECK = "slurmctld"
EVENT_KIND = ("source", "check", "code", "severity")
_NODE_KIND = ("cluster", "node", "check", "code", "severity")
_DAY = Column("day", Kind.INT, "UTC day, as days since 1970")
_NODE_NAME = Column("node", Kind.STRING, "the node")
_HOW_MANY = Column("events", Kind.INT, "how many")
_ENDS = (
    Column("first", Kind.TIME, "time of the first"),
    Column("last", Kind.TIME, "time of the last"),
)
_COLUMNS = {column.name: column for column in EVENTS}


@dataclass(frozen=True, slots=True)
class EventSummary:
    """A table of few rows that says of events what would take a pass over all of them.

    Attributes:
        counted: a statement of DuckDB that makes it of rows of the table `events`; `{events}` is
            where these stand.
    """

    table: Table
    counted: str


EVENT_CENSUS = EventSummary(
    Table(
        "event_census",
        "the events of one kind on one UTC day",
        (*EVENT_KIND, "day"),
        (
            *(_COLUMNS[name] for name in EVENT_KIND),
            _DAY,
            _HOW_MANY,
            *_ENDS,
            Column("first_end", Kind.TIME, "the first `time_end`", "none has one"),
            Column("last_end", Kind.TIME, "the last `time_end`", "none has one"),
        ),
    ),
    (
        'SELECT source, "check", code, severity, epoch_us("time") // 86400000000 AS day, '
        'count(*) AS events, min("time") AS first, max("time") AS last, '
        "min(time_end) AS first_end, max(time_end) AS last_end FROM {events} "
        'GROUP BY source, "check", code, severity, epoch_us("time") // 86400000000'
    ),
)
EVENT_NODE_DAYS = EventSummary(
    Table(
        "event_node_days",
        "the events of one node on one UTC day",
        ("cluster", "node", "day"),
        (
            _COLUMNS["cluster"],
            _NODE_NAME,
            _DAY,
            Column("errors", Kind.INT, "how many its own logs hold: not the controller's"),
        ),
    ),
    (
        'SELECT cluster, node, epoch_us("time") // 86400000000 AS day, '
        "count(*) FILTER (WHERE \"check\" <> 'slurmctld') AS errors FROM {events} "
        'WHERE node IS NOT NULL GROUP BY cluster, node, epoch_us("time") // 86400000000'
    ),
)
EVENT_NODE_KINDS = EventSummary(
    Table(
        "event_node_kinds",
        "the events of one kind of one node",
        _NODE_KIND,
        (
            _COLUMNS["cluster"],
            _NODE_NAME,
            *(_COLUMNS[name] for name in _NODE_KIND[2:]),
            _HOW_MANY,
            *_ENDS,
        ),
    ),
    (
        'SELECT cluster, node, "check", code, severity, count(*) AS events, min("time") AS first, '
        'max("time") AS last FROM {events} WHERE node IS NOT NULL '
        'GROUP BY cluster, node, "check", code, severity'
    ),
)
EVENT_BUSY_DAYS = EventSummary(
    Table(
        "event_busy_days",
        "a node on a UTC day in more than five hours of which its own logs hold an event that is "
        "not ok",
        ("cluster", "node", "day"),
        (_COLUMNS["cluster"], _NODE_NAME, _DAY),
    ),
    (
        'SELECT cluster, node, epoch_us("time") // 86400000000 AS day FROM {events} '
        "WHERE node IS NOT NULL AND \"check\" <> 'slurmctld' AND severity <> 'ok' "
        'GROUP BY cluster, node, epoch_us("time") // 86400000000 '
        # a bit for each hour of the day
        "HAVING bit_count(bit_or(1::BIGINT << date_part('hour', \"time\"))) > 5"
    ),
)
EVENT_SUMMARIES = {
    one.table.name: one
    for one in (EVENT_CENSUS, EVENT_NODE_DAYS, EVENT_NODE_KINDS, EVENT_BUSY_DAYS)
}
