"""`slurmctld.log`: which node's failure ended a job, and for whom a job was preempted.

The controller's log alone says so; accounting does not. The forms of its messages are those of
Slurm 2.x (`job 17`, `job_id 17`) to 25.x (`JobId=17_0(18)`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions, Source
from ettr.sources.lines import numbered_texts
from ettr.sources.node_lists import NodeLists
from ettr.sources.origin import Origin
from ettr.sources.times import has_local_stamps, need_zone, utc_of_local
from ettr.tables.rows import DEFAULT_CLUSTER, Batch, EventRows, Rejects

NAME = "slurmctld-log"
CHECK = "slurmctld"
_BATCH_ROWS = 100_000

_STAMP = re.compile(
    r"\[(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?P<offset>Z|[+-]\d\d:?\d\d)?\]\s*"
    r"|\[(?P<short>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d{1,9})?\]\s*"
    r"|(?P<iso_sys>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r"(?P<offset_sys>Z|[+-]\d\d:?\d\d)? (?:\S+ )?slurmctld(?:\[\d+\])?: ?"
    r"|(?P<short_sys>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?:\S+ )?slurmctld(?:\[\d+\])?: ?"
)
_JOB = (
    r"(?:job )?(?:JobId=|[Jj]ob_?[Ii]?[Dd]?[ =])"
    r"(?P<{0}>\d+(?:_(?:\d+|\*|\[[^\]\s]*\]))?(?:\+\d+)?)(?:\(\d+\))?"
)
_NODE = r"(?P<node>[^\s,;()=]*[^\s,;()=:])"
_NODES = r"(?P<nodes>\S+)"


@dataclass(frozen=True, slots=True)
class _Form:
    """One form of message and the code it gets."""

    pattern: re.Pattern[str]
    code: str
    severity: str


def _form(text: str, code: str, severity: str) -> _Form:
    pattern = text.replace("<JOB>", _JOB.format("job")).replace("<FOR>", _JOB.format("other"))
    pattern = pattern.replace("<NODES>", _NODES).replace("<NODE>", _NODE)
    return _Form(re.compile(pattern), code, severity)


FORMS = (
    _form(r"requeue <JOB> due to failure of node <NODE>", "NODE_FAIL", "critical"),
    _form(r"Killing <JOB> on failed node <NODE>", "NODE_FAIL", "critical"),
    _form(r"Removing failed node <NODE> from <JOB>", "NODE_REMOVED", "critical"),
    _form(
        r"preempted <JOB> (?:has been \w+|suspended by gang scheduler)"
        r"(?: to reclaim resources for <FOR>)?",
        "PREEMPTED",
        "ok",
    ),
    _form(
        r"preempted <JOB> (?:had to be killed|could not be requeued|kill failure)",
        "PREEMPTED",
        "ok",
    ),
    _form(r"Batch <JOB> missing from (?:batch )?node <NODE>", "JOB_LOST", "critical"),
    _form(r"Requeuing <JOB>", "REQUEUED", "ok"),
    _form(r"Nodes <NODES> not responding, setting DOWN", "NODE_DOWN", "critical"),
    _form(r"Nodes? <NODES> not responding", "NOT_RESPONDING", "warning"),
    _form(r"[Nn]ode <NODE> (?:has )?(?:unexpectedly )?rebooted", "NODE_REBOOTED", "critical"),
    _form(r"[Nn]ode <NODE> now responding", "NODE_UP", "ok"),
    _form(r"[Nn]ode <NODE> returned to service", "NODE_RESUMED", "ok"),
    _form(r"[Nn]ode <NODE> reason set to: ?(?P<reason>.*)", "REASON", "unknown"),
    _form(r"[Nn]odes? <NODES> state set to (?P<state>[A-Z][A-Z_]+)", "", ""),
    _form(r"[Ss]etting nodes? <NODES> (?:state )?to (?P<state>[A-Z][A-Z_]+)", "", ""),
    _form(r"epilog error on <NODE>, draining", "EPILOG_ERROR", "critical"),
    _form(
        r"slurmd error running <JOB> (?:on|from) node\(?s?\)?=<NODES>:", "LAUNCH_ERROR", "warning"
    ),
    _form(r"Prolog (?:launch )?failure,? <JOB>", "PROLOG_ERROR", "warning"),
    _form(
        r"(?:Node <NODE> |node=)(?:has low \S+ size|.*low socket\*core\S* count)",
        "CONFIG_MISMATCH",
        "warning",
    ),
    _form(
        r"[Nn]ode <NODE>:? .*gres/(?:\S+) count (?:reported lower|too low)",
        "GRES_MISSING",
        "critical",
    ),
    _form(r"is_node_resp: node:<NODE> RPC:\S+ : (?!Success)", "COMMUNICATION", "warning"),
    _form(r"Time ?limit exhausted for <JOB>", "TIMEOUT", "ok"),
    _form(r"<JOB> OOM failure", "OUT_OF_MEMORY", "ok"),
    _form(r"REQUEST_KILL_JOB <JOB>", "CANCELLED", "ok"),
    _form(r"dependency can't be satisfied, cancelling <JOB>", "DEPENDENCY_NEVER", "ok"),
    _form(r"slurmctld version \S+ started on cluster (?P<cluster>\S+)", "CONTROLLER_START", "ok"),
    _form(r"Terminate signal .*received", "CONTROLLER_STOP", "ok"),
)

_BY_STATE = {
    "DOWN": ("NODE_DOWN", "critical"),
    "DRAIN": ("DRAIN", "warning"),
    "DRAINED": ("DRAIN", "warning"),
    "DRAINING": ("DRAIN", "warning"),
    "FAIL": ("NODE_FAILING", "critical"),
    "FAILING": ("NODE_FAILING", "critical"),
    "IDLE": ("NODE_RESUMED", "ok"),
    "RESUME": ("NODE_RESUMED", "ok"),
    "UNDRAIN": ("NODE_RESUMED", "ok"),
    "INVAL": ("CONFIG_MISMATCH", "critical"),
    "INVALID_REG": ("CONFIG_MISMATCH", "critical"),
}
# words without which no form fits: most lines of a busy controller are passed over by these
_MAY_FIT = re.compile(
    r"failed node|failure|preempted|missing from|Requeuing|respond|reboot|returned to service|set "
    r"to|etting node|epilog error|error running|Prolog|low |count |is_node_resp|exhausted|"
    r"KILL_JOB|dependency|started on cluster|Terminate signal"
)


def matches(head: bytes, file_name: str) -> float:
    """How surely the lines are the controller's: by their stamps and by its own words."""
    text = head.decode("utf-8", "replace")
    lines = [line for line in text.split("\n") if line.strip()][:400]
    stamped = [line for line in lines if _STAMP.match(line)]
    if not stamped or len(stamped) < 0.5 * len(lines):
        return 0.0
    own = sum(_is_controllers(line) for line in stamped)
    return 0.95 if own else 0.0


_OWN_WORDS = re.compile(
    r"slurmctld|_slurm_rpc_|sched: |sched/backfill|_job_complete|update_node: |SchedulerParameters|"
    r"Requeuing JobId|JobId=\d+ .*NodeList|select/cons|not responding, setting DOWN|"
    r"to reclaim resources for|due to failure of node|on failed node|agent/is_node_resp"
)


def _is_controllers(line: str) -> bool:
    return _OWN_WORDS.search(line) is not None


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Batches of events; lines that say nothing of failures are counted as skipped.

    Raises:
        SourceError: no line has a stamp as slurmctld writes it.
        UsageError: the stamps have no zone and the user gave none.
    """
    reader = _Reader(origin, options)
    for number, line in numbered_texts(origin):
        reader.add(number, line)
        if reader.waiting >= _BATCH_ROWS:
            yield reader.batch()
    if not reader.stamped:
        raise SourceError(
            f"{origin}: no line begins with a stamp as slurmctld writes it, such as "
            "[2026-11-21T10:16:25.492]"
        )
    yield reader.batch(last=True)


class _Reader:
    """Lines of one log on their way to events."""

    def __init__(self, origin: Origin, options: ReadOptions) -> None:
        self._origin, self._options = origin, options
        self._events = EventRows(NAME, origin.file_id, options.cluster or DEFAULT_CLUSTER)
        self._rejects = Rejects(NAME, origin.file_id)
        self._nodes = NodeLists()
        self._cluster = options.cluster
        self._reason: dict[str, str] = {}
        self._stamps = _Stamps(str(origin), options)
        self._read = self._skipped = 0
        self._unnamed = 0
        self.stamped = False

    @property
    def waiting(self) -> int:
        return len(self._events) + len(self._rejects.rows)

    def add(self, number: int, line: str) -> None:
        self._read += 1
        stamp = _STAMP.match(line)
        if stamp is None:
            self._skipped += 1
            return
        self.stamped = True
        message = line[stamp.end() :]
        found = first_form(message)
        if found is None:
            self._skipped += 1
            return
        form, match = found
        time = self._stamps.utc(stamp)
        if time is None:
            self._rejects.add(number, "bad-timestamp", f"{stamp[0].strip()} is no time", line)
            return
        groups = match.groupdict()
        if groups.get("cluster") and not self._options.cluster:
            self._cluster = groups["cluster"]
        nodes = self._node_names(groups)
        if nodes is None:
            self._rejects.add(number, "bad-node-list", f"{groups['nodes']!r} is no list", line)
            return
        self._keep(number, time, message, form, groups, nodes)

    def _node_names(self, groups: dict[str, Any]) -> tuple[str | None, ...] | None:
        if groups.get("nodes"):
            return self._nodes(groups["nodes"].rstrip(":,"))
        return (groups.get("node"),)

    def _keep(
        self,
        number: int,
        time: datetime,
        message: str,
        form: _Form,
        groups: dict[str, Any],
        nodes: tuple[str | None, ...],
    ) -> None:
        code, severity = form.code, form.severity
        if not code:
            code, severity = _BY_STATE.get(groups["state"], ("STATE_" + groups["state"], "unknown"))
        if self._cluster is None:
            self._unnamed += 1
        for node in nodes:
            text = message
            if node is not None and code == "REASON":
                self._reason[node] = groups["reason"]
            elif node is not None and groups.get("state"):
                reason = self._reason.pop(node, None)
                text = f"{message}: {reason}" if reason else message
            self._events.add(
                line=number,
                time=time,
                check=CHECK,
                node=node,
                code=code,
                severity=severity,
                message=text,
                cluster=self._cluster,
                job_id=groups.get("job"),
                related_job_id=groups.get("other"),
            )

    def batch(self, last: bool = False) -> Batch:
        tables = {}
        if len(self._events):
            tables["events"] = self._events.take()
        rejected = len(self._rejects.rows)
        if rejected:
            tables["rejects"] = self._rejects.table()
        notes: tuple[str, ...] = self._stamps.notes() if last else ()
        if last and self._unnamed:
            notes += (
                f"{self._unnamed} lines come before the log names its cluster; taken as "
                f"{DEFAULT_CLUSTER} (--cluster names it)",
            )
        done = Batch(tables, self._read, rejected, self._skipped, notes)
        self._rejects = Rejects(NAME, self._origin.file_id)
        self._read = self._skipped = 0
        return done


class _Stamps:
    """Stamps of one log -> UTC; a stamp without a year needs the log's start."""

    def __init__(self, what: str, options: ReadOptions) -> None:
        self._what, self._options = what, options
        self._year = options.start.year if options.start else None
        self._month = 0
        self._guessed = False

    def utc(self, stamp: re.Match[str]) -> datetime | None:
        iso = stamp["iso"] or stamp["iso_sys"]
        zone = stamp["offset"] or stamp["offset_sys"]
        try:
            if iso is None:
                local = self._with_year(stamp["short"] or stamp["short_sys"])
                if local is None:
                    return None
            elif zone:
                return datetime.fromisoformat(iso + zone).astimezone(UTC)
            else:
                local = datetime.fromisoformat(iso)
            return utc_of_local(local, need_zone(self._options.timezone, self._what))
        except (ValueError, OverflowError):
            return None

    def _with_year(self, text: str) -> datetime | None:
        if self._year is None:
            return None
        found = datetime.strptime(f"2000 {text}", "%Y %b %d %H:%M:%S")  # noqa: DTZ007
        if found.month + 6 < self._month:
            self._year += 1
        self._month = found.month
        self._guessed = True
        return found.replace(year=self._year)

    def notes(self) -> tuple[str, ...]:
        if not self._guessed:
            return ()
        return ("stamps without a year are counted from the year of --start",)


def first_form(message: str) -> tuple[_Form, re.Match[str]] | None:
    """The first form that a message has, or None for one that tells nothing of failures."""
    if _MAY_FIT.search(message) is None:
        return None
    for form in FORMS:
        if match := form.pattern.search(message):
            return form, match
    return None


SOURCE = Source(
    name=NAME,
    title="Slurm controller log, slurmctld.log",
    tables=("events",),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=has_local_stamps(_STAMP),
    options=("--timezone", "--cluster", "--start"),
    how_to_get="the file that SlurmctldLogFile names in slurm.conf; its stamps are in the "
    "controller's own zone",
)
