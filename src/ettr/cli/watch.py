"""`ettr watch`: a store that stays up to date, served as metrics, JSON and a page."""

from __future__ import annotations

import signal
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.groups import SITE_FILE, WATCH, Only
from ettr.cli.output import check_writable, complain, say
from ettr.errors import UsageError

if TYPE_CHECKING:
    from ettr.live.server import Address
    from ettr.live.watching import WatchPlan

_KEYS = {
    "files": list,
    "timezone": str,
    "cluster": str,
    "source": str,
    "host": str,
    "port": int,
    "token-file": str,
    "cert": str,
    "key": str,
    "every": str,
    "collect-every": str,
    "collect-since": str,
    "journal": list,
    "page": bool,
}
_ENDS = (signal.SIGTERM, signal.SIGINT)
_GIVEN = ("taxonomy", "believe", "window", "fleet_nodes", "interval", "slo", "gpus_per_node")


def watch(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Folder; created if absent.")],
    *,
    watched: Annotated[
        Path | None,
        typer.Option("--watched", metavar="FILE", help="File with [watch]; default ettr.toml."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Look once, print the metrics and exit.")
    ] = False,
    backfill: Annotated[
        Path | None,
        typer.Option(
            "--backfill",
            metavar="FILE",
            help="Write the past as OpenMetrics for `promtool tsdb create-blocks-from`, and exit.",
        ),
    ] = None,
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="Time between two samples of --backfill.")
    ] = "1d",
    dashboards: Annotated[
        Path | None,
        typer.Option(
            "--dashboards", metavar="FOLDER", help="Write Grafana's and Prometheus' files."
        ),
    ] = None,
    metric: Annotated[opt.MetricOptions, Only(*_GIVEN)],
) -> None:
    """Keep a store up to date and serve its metrics, its report and its budgets.

    [watch] of ettr.toml names the files; they are followed over rotation and compression. Serves
    /metrics, / (the report), /report.json, each metric (/failures.json) and /healthz, on loopback
    unless a token is asked.
    """
    from ettr.live.watching import StoreWatch, only_watcher, shipped
    from ettr.live.watching import backfill as history

    if dashboards is not None:
        dashboards.mkdir(parents=True, exist_ok=True)
        for name, text in shipped().items():
            (dashboards / name).write_text(text, "utf-8")
        say(f"{dashboards}: {', '.join(sorted(shipped()))}")
        return
    assumptions = metric.assumptions(metric.gpus_per_node)
    if backfill is not None:
        check_writable("--backfill", backfill)
        length = timedelta(seconds=q.seconds("--step", step))
        if length < timedelta(minutes=1):
            raise UsageError(f"--step {step}: give 1min or more, such as 1d")
        _needs_client()
        backfill.write_bytes(history(store, assumptions, length))
        say(f"Written: {backfill}")
        return
    _needs_client()
    if "://" in store or Path(store).is_file() or Path(store).suffix in {".duckdb", ".ddb"}:
        raise UsageError(
            f"{store}: a store in a bucket or a database cannot be watched, since the lock and "
            "the counters are files next to it; give a folder"
        )
    plan, address = _plan(Path(store), watched)
    ended: list[int] = []
    made = StoreWatch(plan, assumptions, lambda: datetime.now(UTC), time.sleep, complain)
    with only_watcher(plan.store, complain):
        if once:
            made.look()
            say(made.served.metrics.decode().rstrip("\n"))
            if made.served.health and not made.served.health["ok"]:
                raise typer.Exit(1)
            return
        from ettr.live.server import serve

        def end(*_: object) -> None:
            ended.append(1)
            raise KeyboardInterrupt  # out of the sleep, or of a query

        before = [signal.signal(one, end) for one in _ENDS]
        server = serve(address, lambda: made.served)
        scheme = "http" if address.cert is None else "https"
        complain(f"{scheme}://{address.host}:{server.server_address[1]}/metrics")
        try:
            made.run(lambda: bool(ended))
        except BaseException:
            # a library may put an error of its own in place of the interrupt
            if not ended:
                raise
        finally:
            for one, handler in zip(_ENDS, before, strict=True):
                signal.signal(one, handler)
            server.shutdown()


def _needs_client() -> None:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise UsageError(
            "ettr watch needs prometheus-client: install ettr with the extra `live`"
        ) from None


def _plan(store: Path, watched: Path | None) -> tuple[WatchPlan, Address]:
    from ettr.live.server import Address
    from ettr.live.watching import WatchPlan
    from ettr.sources.base import ReadOptions

    path = watched or Path(SITE_FILE)
    try:
        whole = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: cannot read it ({error}); give a TOML file with [watch]"
        ) from None
    found = whole.get(WATCH)
    if not isinstance(found, dict):
        raise UsageError(f'{path}: has no table [watch]; give it files = ["/var/log/gpu/*.log"]')
    for name, value in found.items():
        if name not in _KEYS:
            raise UsageError(f"{path}: [watch] has no {name!r}; known: {', '.join(_KEYS)}")
        listed = value if isinstance(value, list) else []
        are_texts = all(isinstance(one, str) for one in listed)
        if not (isinstance(value, _KEYS[name]) and are_texts):
            kind = {list: "a list of texts", str: "text", int: "a number", bool: "true or false"}
            raise UsageError(f"{path}: [watch] {name} is {value!r:.80}; give {kind[_KEYS[name]]}")
    if not found.get("files") and not {"collect-every", "journal"} & found.keys():
        raise UsageError(f"{path}: [watch] follows nothing; give files, journal or collect-every")

    def path_of(name: str) -> Path | None:
        return None if name not in found else path.parent / found[name]

    def seconds(name: str) -> float | None:
        return None if name not in found else q.seconds(f"{path}: {name}", found[name])

    options = ReadOptions(
        timezone=found.get("timezone", whole.get("timezone")), cluster=found.get("cluster")
    )
    plan = WatchPlan(
        store,
        tuple(str(path.parent.absolute() / one) for one in found.get("files", [])),
        options,
        found.get("source"),
        seconds("every") or 60.0,
        seconds("collect-every"),
        q.if_given(q.utc_moment, "collect-since", found.get("collect-since")),
        found.get("page", True),
        None if "journal" not in found else tuple(found["journal"]),
    )
    token = path_of("token-file")
    address = Address(
        found.get("host", "127.0.0.1"),
        found.get("port", 9469),
        "" if token is None else _token(token),
        path_of("cert"),
        path_of("key"),
    )
    address.check()
    return plan, address


def _token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot read it ({error}); give a file with the token") from None
    if len(token) < 16:
        raise UsageError(f"{path}: the token has {len(token)} characters; give 16 or more")
    return token
