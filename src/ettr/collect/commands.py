"""The commands that write a site's logs, as lists of words, and the period to collect."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ettr.errors import UsageError
from ettr.facts.opening import facts_of_store
from ettr.store import Store
from ettr.store.opening import on_duckdb
from ettr.units import MICROSECONDS_PER_SECOND

# times in UTC and in the one form that is read, whatever the site's shells set
ENVIRONMENT = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
# a longer period is asked for in pieces, as one answer of slurmdbd is held in memory
LONGEST_PIECE = timedelta(days=31)

_CLUSTER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_EVENT_FORMAT = "Format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User"


@dataclass(frozen=True, slots=True)
class CollectCommand:
    """A command whose output is a log.

    Attributes:
        holds: words that an answer of use has; empty: any answer.
        has_header: whether the first line names columns, so that an answer of one line is of no
            record.
    """

    words: tuple[str, ...]
    file_name: str
    is_needed: bool = True
    holds: str = ""
    has_header: bool = False
    may_be_empty: bool = False

    def shell_lines(self, folder: Path) -> list[str]:
        """The command as lines of a shell script, each word quoted.

        The file has another name until it is whole, and is left out where it is of no use.
        """
        settings = " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items())
        draft, target = (
            shlex.quote(str(folder / name)) for name in (f".{self.file_name}.part", self.file_name)
        )
        failed = "exit 1" if self.is_needed else "true"
        nothing = shlex.quote(f"{self.words[0]}: no record from then; {self.file_name} is left out")
        is_of_use = f"[ -s {draft} ]"
        if self.holds:
            is_of_use = f"grep -q -e {shlex.quote(self.holds)} -- {draft}"
        elif self.has_header:
            is_of_use = f'[ "$(wc -l < {draft})" -gt 1 ]'
        cut = shlex.quote(
            f"{self.words[0]}: its output ends within a line; {self.file_name} is cut"
        )
        return [
            f"{settings} {shlex.join(self.words)} > {draft} || {failed}",
            f'if [ -n "$(tail -c 1 -- {draft})" ]; then : > {draft}; echo {cut} >&2; {failed}; fi',
            f"if {is_of_use}; then mv -- {draft} {target}",
            f"else rm -- {draft}; echo {nothing} >&2; fi",
        ]


def collect_commands(
    since: datetime, until: datetime, cluster: str | None = None
) -> tuple[CollectCommand, ...]:
    """What to run, in this order; accounting last, since its end says where the next time begins.

    Raises:
        UsageError: the period holds no time, or no cluster can have the name.
    """
    if since >= until:
        raise UsageError(
            f"the period from {_time(since)} until {_time(until)} holds no time; give a --since "
            "before --until"
        )
    if cluster is not None and not _CLUSTER.fullmatch(cluster):
        raise UsageError(
            f"--cluster {cluster[:80]!r}: give the name of a cluster as sacctmgr shows it, of "
            "letters, digits, dots, dashes and underscores"
        )
    of_cluster = () if cluster is None else ("-M", cluster)
    of_events = () if cluster is None else (f"Clusters={cluster}",)
    name = "" if cluster is None else f"{cluster}-"
    period = f"{name}{_stamp(since)}-{_stamp(until)}"
    events = ("sacctmgr", "-P", "show", "event", *of_events, f"Start={_time(since)}")
    return (
        CollectCommand(
            (*events, f"End={_time(until)}", _EVENT_FORMAT), f"events-{period}.psv", has_header=True
        ),
        CollectCommand(
            ("scontrol", *of_cluster, "show", "node"), f"nodes-{name}{_stamp(until)}.txt"
        ),
        CollectCommand(
            ("scontrol", *of_cluster, "show", "topology"),
            f"topology-{name}{_stamp(until)}.txt",
            is_needed=False,
            holds="SwitchName=",
        ),
        *(
            CollectCommand(
                ("sacct", *of_cluster, "-a", "-D", "-P", *_span(begin, end), "-o", "ALL"),
                f"sacct-{name}{_stamp(begin)}-{_stamp(end)}.psv",
                has_header=True,
            )
            for begin, end in _pieces(since, until)
        ),
    )


def by_hand(since: datetime) -> tuple[tuple[str, str], ...]:
    """What no command on this machine writes: what it is, and how to get it."""
    return (
        (
            "kernel log of each node",
            f"journalctl -k -o json --no-pager --since '{since:%Y-%m-%d %H:%M:%S} UTC' > NODE.json",
        ),
        (
            "log of slurmctld, whose path this prints; its stamps are in the controller's zone",
            "scontrol show config | grep SlurmctldLogFile",
        ),
    )


def _pieces(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    begins = [since]
    while begins[-1] + LONGEST_PIECE < until:
        begins.append(begins[-1] + LONGEST_PIECE)
    return list(zip(begins, [*begins[1:], until], strict=True))


def _span(begin: datetime, end: datetime) -> tuple[str, ...]:
    return "-S", _time(begin), "-E", _time(end)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%SZ}"


# -- Where a collection begins: behind what a store knows, less an overlap ------------------------


@dataclass(frozen=True, slots=True)
class CollectPeriod:
    """From when until when, in UTC, and why from then."""

    since: datetime
    until: datetime
    basis: str


def period_after(
    store: Store, name: str, until: datetime, overlap: timedelta, cluster: str | None = None
) -> CollectPeriod:
    """From the last time of the store's accounting, less an overlap.

    sacct shows each job that ran at any time of a period, so that jobs which were running at the
    last time are shown again, with their ends; the overlap is for records that slurmdbd got late.

    Raises:
        UsageError: the store has no attempt (of that cluster), attempts of several clusters, or
            one that lies in the future.
    """
    last = _last_times(store)
    if cluster is None and len(last) > 1:
        raise UsageError(
            f"{name}: has the clusters {', '.join(sorted(last))}, each with a last time of its "
            "own; say which with --cluster"
        )
    chosen = last.get(cluster) if cluster is not None else next(iter(last.values()), None)
    if chosen is None:
        of_cluster = "" if cluster is None else f" of the cluster {cluster}"
        raise UsageError(
            f"{name}: has no accounting{of_cluster} yet; give the start of the period with --since"
        )
    if chosen > until:
        raise UsageError(
            f"{name}: has an attempt at {_utc(chosen)}, which is after the end of the period, "
            f"{_utc(until)}; give the start of the period with --since"
        )
    basis = f"{_utc(chosen)}, the last time of the accounting in {name}, less the overlap"
    return CollectPeriod(chosen - overlap, until, basis)


def _last_times(store: Store) -> dict[str, datetime]:
    """The latest time of an attempt, by cluster."""
    found: dict[str, datetime] = {}
    for row in facts_of_store(on_duckdb(store)).rows("last_times"):
        times_us = [
            row[name] for name in ("submit_us", "start_us", "end_us") if row[name] is not None
        ]
        if times_us:
            seconds = max(times_us) // int(MICROSECONDS_PER_SECOND)
            found[row["cluster"]] = datetime.fromtimestamp(seconds, UTC)
    return found


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
