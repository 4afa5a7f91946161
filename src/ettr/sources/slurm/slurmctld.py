"""`slurmctld.log`: which node's failure ended a job, and for whom a job was preempted.

The controller's log alone says so; accounting does not. The forms of its messages are those of
Slurm 2.x (`job 17`, `job_id 17`) to 25.x (`JobId=17_0(18)`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from ettr.errors import SourceError
from ettr.sources.base import READERS, ReadOptions, Source
from ettr.sources.lines import SEARCHED_CHARACTERS, BadRecordError, first_texts, numbered_texts
from ettr.sources.log_rows import LogRows
from ettr.sources.node_lists import NodeLists, listed_nodes
from ettr.sources.origin import Origin
from ettr.sources.shippers import shipped_head, shipped_texts
from ettr.sources.times import MONTHS, has_local_stamps, within_years
from ettr.tables.rows import Batch

NAME = "slurmctld-log"
CHECK = "slurmctld"
MOST_LISTED = 20_000
"""Nodes of one line; more than Slurm manages anywhere are damage."""

_STAMP = re.compile(
    r"\[(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?P<offset>Z|[+-]\d\d:?\d\d)?\]\s*"
    # LogTimeFormat=thread_id adds the process and the thread
    r"|\[(?P<short>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d{1,9}(?: [^\]]{1,80})?)?\]\s*"
    r"|(?P<iso_sys>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r"(?P<offset_sys>Z|[+-]\d\d:?\d\d)? (?:\S+ )?slurmctld(?:\[\d+\])?: ?"
    r"|(?P<short_sys>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?:\S+ )?slurmctld(?:\[\d+\])?: ?"
)
# LogTimeFormat=clock: the processor time of slurmctld
_CLOCK = re.compile(r"\[\s*\d{1,20}(?:\.\d{1,9})?\] ")
# what may lie between two words is bounded, so that a line's time does not grow as its square
_JOB = (
    r"(?:job )?(?:JobId=|[Jj]ob_?[Ii]?[Dd]?[ =])"
    r"(?P<{0}>\d+(?:_(?:\d+|\*|\[[^\]\s]{{0,400}}\]))?(?:\+\d+)?)(?:\(\d+\))?"
)
_NODE = r"(?P<node>[^\s,;()=]*[^\s,;()=:])"
_NODES = r"(?P<nodes>\S+)"


@dataclass(frozen=True, slots=True)
class _Form:
    """One form of message and the code it gets."""

    pattern: re.Pattern[str]
    code: str
    severity: str
    reason: str = ""


def _form(text: str, code: str, severity: str, reason: str = "") -> _Form:
    pattern = text.replace("<JOB>", _JOB.format("job")).replace("<FOR>", _JOB.format("other"))
    pattern = pattern.replace("<NODES>", _NODES).replace("<NODE>", _NODE)
    return _Form(re.compile(pattern), code, severity, reason)


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
    _form(
        r"[Nn]odes? <NODES> (?:is |are )?(?:now|being) (?P<state>(?i:DRAIN(?:ED|ING)?))\b", "", ""
    ),
    _form(r"[Nn]odes? <NODES> (?:was |were )?(?P<state>(?i:drained)) by ", "", ""),
    _form(
        r"[Ss]etting nodes? <NODES> (?:state )?to (?P<state>[A-Z][A-Z_]+)"
        r"(?: with reason: ?(?P<reason>.*))?",
        "",
        "",
    ),
    _form(
        r"[Nn]ode <NODE> not resumed by ResumeTimeout",
        "NODE_DOWN",
        "critical",
        "ResumeTimeout reached",
    ),
    _form(r"Prolog or job env setup failure on node <NODE>, draining", "PROLOG_ERROR", "critical"),
    _form(r"epilog error on <NODE>, draining", "EPILOG_ERROR", "critical"),
    _form(
        r"slurmd error running <JOB> (?:on|from) node\(?s?\)?=<NODES>:", "LAUNCH_ERROR", "warning"
    ),
    _form(r"Prolog (?:launch )?failure,? <JOB>", "PROLOG_ERROR", "warning"),
    _form(
        r"(?:Node <NODE> |node=)(?:has low \S+ size|.{0,400}low socket\*core\S{0,40} count)",
        "CONFIG_MISMATCH",
        "warning",
    ),
    _form(
        r"[Nn]ode <NODE>:? .{0,400}gres/\S{1,100} count (?:reported lower|too low)",
        "GRES_MISSING",
        "critical",
    ),
    _form(r"is_node_resp: node:<NODE> RPC:\S+ : (?!Success)", "COMMUNICATION", "warning"),
    _form(r"Time ?limit exhausted for <JOB>", "TIMEOUT", "ok"),
    _form(r"<JOB> OOM failure", "OUT_OF_MEMORY", "ok"),
    _form(r"REQUEST_KILL_JOB <JOB>", "CANCELLED", "ok"),
    _form(r"dependency can't be satisfied, cancelling <JOB>", "DEPENDENCY_NEVER", "ok"),
    _form(r"slurmctld version \S+ started on cluster (?P<cluster>\S+)", "CONTROLLER_START", "ok"),
    _form(r"Terminate signal .{0,100}received", "CONTROLLER_STOP", "ok"),
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


def _of_state(state: str) -> tuple[str, str]:
    """Code and severity of a change to that state."""
    return _BY_STATE.get(state, (f"STATE_{state}", "unknown"))


# words without which no form fits: most lines of a busy controller are passed over by these
_MAY_FIT = re.compile(
    r"failed node|failure|ResumeTimeout|preempted|missing from|Requeuing|respond|reboot|"
    r"returned to service|set to|etting node|epilog error|error running|Prolog|low |count |"
    r"is_node_resp|exhausted|KILL_JOB|dependency|started on cluster|Terminate signal|[Dd]rain|DRAIN"
)


_OWN_WORDS = re.compile(
    r"slurmctld|_slurm_rpc_|sched: |sched/backfill|_job_complete|update_node: |SchedulerParameters|"
    r"Requeuing JobId|JobId=\d+ .{0,400}NodeList|select/cons|not responding, setting DOWN|"
    r"to reclaim resources for|due to failure of node|on failed node|agent/is_node_resp"
)


def matches(head: bytes, _name: str) -> float:
    """How surely the lines are the controller's: by their stamps and by its own words."""
    lines = first_texts(shipped_head(head))
    for stamp in (_STAMP, _CLOCK):
        stamped = [line for line in lines if stamp.match(line)]
        if stamped and len(stamped) >= 0.5 * len(lines):
            return 0.95 if any(_OWN_WORDS.search(line) for line in stamped) else 0.0
    return 0.0


def read(origin: Origin, options: ReadOptions) -> Iterator[Batch]:
    """Batches of events; lines that report no failure are counted as skipped.

    Raises:
        SourceError: no line has a stamp as slurmctld writes it.
        UsageError: the stamps have no zone and the user gave none.
    """
    rows = LogRows(NAME, origin, options)
    log = _ControllerLog(rows)
    yield from rows.each(shipped_texts(origin) or numbered_texts(origin), log.add)
    if not log.has_stamps:
        raise SourceError(f"{origin}: {_why_undated(origin.head)}")
    yield rows.batch()


def _why_undated(head: bytes) -> str:
    if any(_CLOCK.match(line) for line in first_texts(head)):
        return (
            "its stamps are processor time of slurmctld (LogTimeFormat=clock), not the time of "
            "day; set LogTimeFormat=iso8601_ms or rfc5424_ms in slurm.conf"
        )
    return "no line begins with a time as slurmctld writes it, such as [2026-11-21T10:16:25.492]"


class _ControllerLog:
    """Turns the lines of one log into events; remembers its cluster and the reasons of nodes."""

    def __init__(self, rows: LogRows) -> None:
        self.rows = rows
        self.has_stamps = False
        self._node_lists = NodeLists()
        self._cluster = rows.options.cluster
        self._reason_of: dict[str, str] = {}

    def add(self, number: int, line: str) -> None:
        """Keep what one line reports, or skip it."""
        stamp = _STAMP.match(line)
        if stamp is None:
            self.rows.count_skipped()
            return
        self.has_stamps = True
        message = line[stamp.end() : stamp.end() + SEARCHED_CHARACTERS]
        found = first_form(message)
        if found is None:
            self.rows.count_skipped()
            return
        form, match = found
        time = self._time(stamp, number, line)
        if time is None:
            raise BadRecordError("bad-timestamp", f"{stamp[0].strip()} is not a time")
        groups = match.groupdict()
        if groups.get("cluster") and not self.rows.options.cluster:
            self._cluster = groups["cluster"]
        nodes = self._node_names(groups)
        if nodes is None:
            raise BadRecordError("bad-node-list", f"{groups['nodes']!r} is not a list")
        code, severity = form.code, form.severity
        if not code:
            code, severity = _of_state((groups["state"] or "").upper())
        for node in nodes:
            self.rows.events.add(
                line=number,
                time=time,
                check=CHECK,
                node=node,
                code=code,
                severity=severity,
                message=self._with_reason(message, node, form, groups),
                cluster=self._cluster,
                job_id=groups.get("job"),
                related_job_id=groups.get("other"),
            )

    def _node_names(self, groups: dict[str, str | None]) -> tuple[str | None, ...] | None:
        if listed := groups.get("nodes"):
            listed = listed.rstrip(":,")
            # each node is an event
            return None if listed_nodes(listed) > MOST_LISTED else self._node_lists(listed)
        return (groups.get("node"),)

    def _with_reason(
        self, message: str, node: str | None, form: _Form, groups: dict[str, str | None]
    ) -> str:
        """The message; that of a change of state with the reason that the line before it gave."""
        if node is None:
            return message
        if form.reason:  # which a change of state has in its own words
            return f"{message} with reason: {form.reason}"
        if groups.get("reason") is not None:
            self._reason_of[node] = groups["reason"] or ""
        elif groups.get("state") and (reason := self._reason_of.pop(node, None)):
            return f"{message}: {reason}"
        return message

    def _time(self, stamp: re.Match[str], number: int, line: str) -> datetime | None:
        """The moment of a line's stamp, or None where it is no time."""
        iso = stamp["iso"] or stamp["iso_sys"]
        offset = stamp["offset"] or stamp["offset_sys"]
        try:
            if iso is None:
                short = (stamp["short"] or stamp["short_sys"]).split()
                text = f"{MONTHS[short[0]]:02d}-{int(short[1]):02d}T{short[2]}"
                return self.rows.time_without_year(text, number, line)
            if offset:
                return within_years(datetime.fromisoformat(iso + offset).astimezone(UTC))
            return within_years(self.rows.utc(datetime.fromisoformat(iso)))
        except (KeyError, ValueError, OverflowError):
            return None


def first_form(message: str) -> tuple[_Form, re.Match[str]] | None:
    """The first form that a message has, or None for one that reports no failure."""
    if _MAY_FIT.search(message) is None:
        return None
    for form in FORMS:
        if match := form.pattern.search(message):
            return form, match
    return None


SOURCE = Source(
    name=NAME,
    version=READERS[NAME],
    title="Slurm controller log, slurmctld.log",
    tables=("events",),
    matches=matches,
    read=read,
    local_time=True,
    prints_local=lambda head: has_local_stamps(_STAMP)(shipped_head(head)),
    options=("--timezone", "--cluster", "--start"),
    how_to_get="the file that SlurmctldLogFile names in slurm.conf; its stamps are in the "
    "controller's own zone",
)
