"""Which rows an answer is about: a period, and jobs and nodes by name.

Evidence is always read whole: a selection picks failures and exposure, and never changes a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from ettr.errors import UsageError

JOB_COLUMNS = ("partition", "account", "user", "qos", "cluster")
"""The filters that are columns of `attempts`."""
_LABELS = {"gpu_type": "GPU type", "qos": "QOS", "placed": "place"}


@dataclass(frozen=True, slots=True)
class Back:
    """A moment, or a calendar day, counted back from the end of the logs.

    Attributes:
        length: How long before the end; None for a day.
        days: Which day: 0 is that of the end, 1 the one before it.
    """

    length: timedelta | None = None
    days: int = 0

    def bounds(self, end: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
        """First moment, and first moment after it; of a length twice the same.

        Args:
            end: of the logs.
            zone: of the calendar.
        """
        if self.length is not None:
            return end - self.length, end - self.length
        midnight = end.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        first, after = (midnight - timedelta(days=days) for days in (self.days, self.days - 1))
        return first.astimezone(UTC), after.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows that an answer is about; what is not given does not restrict.

    Several names of one filter are alternatives, several filters must all hold.

    Attributes:
        since: Start of the period, which belongs to it; with a zone.
        until: End of the period, which does not belong to it; with a zone.
        partition: Of the job; likewise account, user, qos and cluster.
        node: Nodes on which time counts and which failures blame.
        gpu_type: The same by its GPU type, as jobs held it or the inventory says.
        place: The same by the rack, pod or switch, before it is known what these hold.
        placed: Places of which `node` has the nodes.
        since_back: Start of the period, counted from the end of the logs; likewise until_back.

    Raises:
        UsageError: a time without a zone, or a period that ends before it begins.
    """

    since: datetime | None = None
    until: datetime | None = None
    partition: tuple[str, ...] = ()
    account: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    gpu_type: tuple[str, ...] = ()
    place: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    since_back: Back | None = None
    until_back: Back | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise UsageError(f"{name} {moment}: has no zone; give one, such as tzinfo=UTC")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError(
                f"the period from {_utc(self.since)} until {_utc(self.until)} holds no time; give "
                "an end later than the start"
            )

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return not (self.has_period or self.of_jobs or self.of_nodes)

    @property
    def has_period(self) -> bool:
        """Whether a start or an end is given."""
        return self.since is not None or self.until is not None

    @property
    def counts_back(self) -> bool:
        """Whether its period is counted from the end of the logs."""
        return self.since_back is not None or self.until_back is not None

    def counted_from(self, end: datetime, zone: tzinfo) -> Selection:
        """The same with the moments of its period.

        Args:
            end: of the logs.
            zone: of calendar days.
        """
        since, until = self.since, self.until
        if self.since_back is not None:
            since = self.since_back.bounds(end, zone)[0]
        if self.until_back is not None:
            until = self.until_back.bounds(end, zone)[1]
        return replace(self, since=since, until=until, since_back=None, until_back=None)

    @property
    def of_jobs(self) -> dict[str, tuple[str, ...]]:
        """The filters by columns of `attempts` that are given, with their names."""
        return {name: getattr(self, name) for name in JOB_COLUMNS if getattr(self, name)}

    @property
    def of_nodes(self) -> bool:
        """Whether nodes are chosen, by name, by GPU type or by place."""
        return bool(self.node or self.gpu_type or self.place)

    @property
    def without_nodes(self) -> Selection:
        """The same on any node."""
        return replace(self, node=(), gpu_type=(), place=(), placed=())

    @property
    def at_any_time(self) -> Selection:
        """The same rows in any period."""
        return replace(self, since=None, until=None)

    @property
    def may_split_runs(self) -> bool:
        """Whether some attempts of a run may be selected and others not: all are of one cluster."""
        return self.of_nodes or bool(self.of_jobs.keys() - {"cluster"})

    @property
    def only_nodes(self) -> Selection:
        """The same nodes at any time, of any job."""
        return Selection(node=self.node, gpu_type=self.gpu_type, placed=self.placed)

    def holds(self, time_s: float) -> bool:
        """Whether a moment, in seconds since 1970, lies in the period."""
        return not (
            (self.since is not None and time_s < self.since.timestamp())
            or (self.until is not None and time_s >= self.until.timestamp())
        )

    @property
    def words(self) -> str:
        """What is selected, in words; empty for everything."""
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        if self.since is not None:
            yield f"from {_utc(self.since)} UTC"
        if self.until is not None:
            yield f"until before {_utc(self.until)} UTC"
        for name in (*JOB_COLUMNS, "node", "gpu_type", "placed"):
            # a place says more than its nodes
            if (names := getattr(self, name)) and not (name == "node" and self.placed):
                yield f"{_LABELS.get(name, name)} {' or '.join(names)}"


def _utc(moment: datetime) -> str:
    """The moment in UTC, no more precise than it is."""
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    return text.removesuffix(" 00:00:00")
