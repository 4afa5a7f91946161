"""Commands that bring logs into a store: `ingest`, `collect`, `compact`, `sources`, `watch`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ettr.cli import options as opt
from ettr.cli import quantities as q
from ettr.cli.file_options import Reading, existing_files, ingest_all
from ettr.cli.groups import SITE_FILE, WATCH, Only
from ettr.cli.output import FiledPrinting, Printing, check_writable, complain, say
from ettr.cli.selecting import OnEngine
from ettr.errors import UsageError
from ettr.words import counted

if TYPE_CHECKING:
    from ettr.collect.running import CollectCommand, CollectPeriod
    from ettr.live.server import Address
    from ettr.live.watching import WatchPlan
    from ettr.report.rows import JsonValue
    from ettr.sources.ingest import Ingested


def ingest(
    store: opt.StoreArgument,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Logs to read; - is standard input.")
    ],
    *,
    reading: Reading,
    judging: Annotated[opt.Judging, Only("taxonomy")],
    readable_by: Annotated[
        str | None,
        typer.Option(
            "--readable-by",
            metavar="WHOM",
            help="Who may read the store's files: owner, group or all; default owner. An "
            "existing store keeps its setting.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            max=1024,
            help="Processes that read files; where given, also blocks of one large `sacct` file. "
            "Default one a core for large files.",
        ),
    ] = None,
    on: Annotated[OnEngine, Only("memory_limit")],
    printing: Printing,
) -> None:
    """Read logs into a store, which is created if absent.

    Reading the same file again changes nothing; a later dump of the same jobs updates them. Every
    record read is kept, folded into another's row, rejected with a reason, or skipped by design;
    the four are printed. What comes through a pipe (`sacct ... | ettr ingest STORE -`) is kept in a
    temporary file while it is read.
    """
    from ettr.report.rows import plain_fields
    from ettr.store import Access

    judging.check()
    options = reading.read_options(judging.taxonomy)
    access = None if readable_by is None else q.one_of("--readable-by", readable_by, Access)
    there = existing_files(files)  # first, so that a slip makes no store
    with on.open(store, create=True, readable_by=access) as opened:
        done = ingest_all(opened, there, options, reading.source, jobs=jobs)
    if not printing.listed([plain_fields(one) for one in done]):
        for one in done:
            say(_line(one))


def compact(store: opt.StoreArgument, *, printing: Printing) -> None:
    """Make few files of the many that small ingestions leave; every answer stays the same.

    `ettr ingest` does so by itself, a few files at a time. Who reads meanwhile is not disturbed. A
    database looks after its own tables, and nothing is done.
    """
    from ettr.store import open_store

    with open_store(store) as opened:
        before, after = opened.compact()
    if not printing.summary({"store": opened.where, "parts_before": before, "parts": after}):
        say(f"{opened.where}: {counted(before, 'part')} before, {after:,} now")


def _line(one: Ingested) -> str:
    if one.unchanged:
        return f"{one.name}: {one.source}, already in the store, unchanged"
    rows = ", ".join(f"{name} ({count:,})" for name, count in one.rows)
    text = f"{one.name}: {one.source}, {counted(one.rows_read, 'record')}"
    # rows as they were read: of several of one key one stands
    text += f" read as rows of {rows}" if rows else ", no rows"
    text += f"; {one.rows_kept:,} kept"
    if one.rows_folded:
        text += f", {one.rows_folded:,} folded into others"
    if one.rows_skipped:
        text += f", {one.rows_skipped:,} skipped by design"
    if one.rows_rejected:
        why = ", ".join(f"{count:,} {reason}" for reason, count in one.rejected)
        text += f", {one.rows_rejected:,} rejected ({why})"
    return text


# -- `ettr sources`: the logs that can be read -----------------------------------------------------


def sources(printing: FiledPrinting) -> None:
    """List the log formats that can be read, and how to get each."""
    from ettr.sources.registry import all_sources

    found = list(all_sources().values())
    if printing.listed(
        [
            {
                "name": source.name,
                "title": source.title,
                "tables": list(source.tables),
                "needs_timezone": source.local_time,
                "how_to_get": source.how_to_get,
            }
            for source in found
        ]
    ):
        return
    width = max(len(source.name) for source in found)
    for source in found:
        zone = "; needs --timezone" if source.local_time else ""
        fills = f" -> {', '.join(source.tables)}" if source.tables else ""
        say(f"{source.name:<{width}}  {source.title}{fills}{zone}")
        if source.how_to_get:
            say(f"{'':<{width}}  get it: {source.how_to_get}")


# -- `ettr catalog`: what the taxonomy holds, and where vendors disagree ---------------------------


def catalog(
    code: Annotated[
        int | None, typer.Argument(metavar="[XID]", help="Only this XID code, in full.")
    ] = None,
    conflicts: Annotated[
        bool, typer.Option("--conflicts", help="Only codes on which the vendors disagree.")
    ] = False,
    *,
    judging: opt.Judging,
    printing: FiledPrinting,
) -> None:
    """Show the XID catalogue: the verdict of each vendor, with its source.

    The question is whether the code is a fault of the node. --believe says whose verdict decides
    in a report; re-run a report with another to see what the choice does to the failure rate.
    """
    from ettr.taxonomy import load_taxonomy

    judging.check()
    taxonomy = load_taxonomy(judging.taxonomy, believe=judging.believe)
    rows = taxonomy.catalog_rows(code=code, conflicts_only=conflicts)
    if code is not None and not rows:
        raise UsageError(f"XID {code} is not in the catalogue; `ettr catalog` lists those that are")
    if printing.listed(rows):
        return
    if code is not None:
        for key, value in rows[0].items():
            say(f"{key:<20} {'-' if value is None else value}")
    else:
        from ettr.report.section import table_text
        from ettr.report.sections.attribution import catalog_table

        say(table_text(catalog_table(rows)))


# what a shell makes of SIGTERM
_ENDED = 128 + signal.SIGTERM


def collect(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="Folder for the collected files; --run creates it."),
    ],
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Start of the period, a date or a time; UTC unless it has an offset.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="End of the period; default now."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="Start where this store's accounting ends."),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="TIME", help="Time before that to collect again."),
    ] = "1d",
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="NAME", help="Cluster, if slurmdbd serves several."),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Run the commands instead of printing them.")
    ] = (False),
    printing: Printing,
) -> None:
    """Print or run the commands that write a site's logs of a period into a folder.

    Printed is a shell script. With --run each file appears when its command has succeeded, readable
    by its owner alone; the first command that fails ends it. With --store the period begins where
    the accounting in the store ends, so that a timer needs no dates.
    """
    from ettr.collect.running import collect as run_all
    from ettr.collect.running import collect_commands

    period = _period(since, until, store, overlap, cluster)
    commands = collect_commands(period.since, period.until, cluster)
    sizes: dict[str, int | None] = {}
    if run:
        # as by Ctrl-C: what is half written goes, and the command under way ends
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
        try:
            done = run_all(commands, folder, os.environ, complain)
        finally:
            signal.signal(signal.SIGTERM, before)
        sizes = {one.path.name: one.size_bytes for one in done}
    entries: list[dict[str, JsonValue]] = [
        {
            "since": period.since.isoformat(),
            "until": period.until.isoformat(),
            "command": list(command.words),
            "file": str(folder / command.file_name),
            "needed": command.is_needed,
            "size_bytes": sizes.get(command.file_name),
        }
        for command in commands
    ]
    if printing.listed(entries):
        return
    if run:
        _say_files(folder, sizes, store)
    else:
        _say_script(folder, period, commands, store)


def _period(
    since: str | None, until: str | None, store: str | None, overlap: str, cluster: str | None
) -> CollectPeriod:
    from ettr.collect.running import CollectPeriod, period_after
    from ettr.store import open_store

    end = datetime.now(UTC).replace(microsecond=0)
    end = q.if_given(q.utc_moment, "--until", until) or end
    overlap_s = q.seconds("--overlap", overlap)
    if since is not None:
        return CollectPeriod(q.utc_moment("--since", since), end, "as given")
    if store is None:
        raise UsageError("give the start with --since, or --store STORE to continue where it ends")
    with open_store(store) as opened:
        return period_after(opened, store, end, timedelta(seconds=overlap_s), cluster)


def _say_script(
    folder: Path, period: CollectPeriod, commands: tuple[CollectCommand, ...], store: str | None
) -> None:
    from ettr.collect.running import by_hand

    say(f"# from {period.since:%Y-%m-%dT%H:%M:%SZ} ({_comment(period.basis)})")
    say(f"# until {period.until:%Y-%m-%dT%H:%M:%SZ}")
    say("umask 077")
    say(f"mkdir -p -- {shlex.quote(str(folder))} || exit 1")
    for command in commands:
        say("\n".join(command.shell_lines(folder)))
    for what, how in by_hand(period.since):
        say(f"# {what}:\n#   {how}")
    say(f"# then: {_ingest(folder, store)}")


def _say_files(folder: Path, sizes: dict[str, int | None], store: str | None) -> None:
    for name, size_bytes in sizes.items():
        if size_bytes is not None:
            say(f"{folder / name}: {size_bytes:,} bytes")
    say(f"then: {_ingest(folder, store)}")


def _ingest(folder: Path, store: str | None) -> str:
    into = "STORE" if store is None else shlex.quote(store)
    return f"ettr ingest {into} {shlex.quote(str(folder))}/* --timezone UTC"


def _comment(text: str) -> str:
    """A text that stays in its line of a script."""
    return " ".join(text.split())


def collect_kubernetes(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Folder for the file; made if absent.")
    ] = None,
    *,
    watch: Annotated[
        str, typer.Option("--watch", metavar="TIME", help="Follow changes for so long.")
    ] = "0s",
    context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
    ] = None,
    role: Annotated[
        bool, typer.Option("--role", help="Print the ClusterRole that it needs, and end.")
    ] = False,
    printing: Printing,
) -> None:
    """Write the objects of a Kubernetes cluster into a folder, and what changes for a while.

    Asks the cluster of KUBECONFIG, or the one whose pod it runs in, with lists and watches alone.
    Environments, annotations, commands and output are left out, Secrets never asked for.
    """
    from ettr.collect import kubernetes as api
    from ettr.sources.kubernetes import kept_of

    if role:
        say(api.role())
        return
    if folder is None:
        raise UsageError("give the FOLDER for the file, such as: ettr collect kubernetes logs")
    watch_s = q.seconds("--watch", watch)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # a collection that failed has reached less than the one before it, or nothing
    reached: dict[tuple[str, str], str] = {}
    for one in sorted(folder.glob("kubernetes-*.jsonl")):
        reached |= api.versions_reached(one)
    path = folder / f"kubernetes-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.jsonl"
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(_ENDED))
    try:
        with api.client(context) as client:
            done = api.collect_kubernetes(
                client,
                path,
                watch_s,
                kept_of,
                lambda: datetime.now(UTC),
                complain,
                reached,
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    entry: dict[str, JsonValue] = {
        "file": str(path),
        "objects": done.n_objects,
        "changes": done.n_changes,
        "gaps": done.n_gaps,
    }
    if not printing.listed([entry]):
        say(f"{path}: {done.n_objects:,} objects, {done.n_changes:,} changes")
        say(f"then: ettr ingest STORE {shlex.quote(str(path))} --cluster NAME")


def collect_prometheus(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Of the server, or what answers as one.")
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder for the file; made if absent.")
    ],
    *,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="From then on, where the folder has no file."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until then; now if absent.")
    ] = None,
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="Between two samples.")
    ] = "1min",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="Bearer token; else PROMETHEUS_TOKEN if it is set."
        ),
    ] = None,
    printing: Printing,
) -> None:
    """Write what Prometheus recorded of nodes into a folder, and next time what came since.

    Asked are the metrics that are read: node conditions, cordons, XIDs, memory errors and boots, in
    pieces that a server answers. The token is sent to URL and written nowhere.
    """
    from ettr.collect.prometheus import collect_prometheus as asked
    from ettr.sources.prometheus import QUERIES, reduced

    now = datetime.now(UTC)  # what is to come was not asked yet
    end = min(q.if_given(q.utc_moment, "--until", until) or now, now)
    begin = q.if_given(q.utc_moment, "--since", since)
    step_s = q.seconds("--step", step)
    if step_s < 1:
        raise UsageError(f"--step {step}: give 1s or more, such as 1min")
    if begin is not None and begin >= end:
        raise UsageError("give a --since before --until")
    token = os.environ.get("PROMETHEUS_TOKEN")
    if token_file is not None:
        token = token_file.read_text("utf-8", "replace").strip()
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError("the token is not of printable ASCII, so no token")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "prometheus.jsonl"
    begin_s = None if begin is None else begin.timestamp()
    end_s = end.timestamp()
    done = asked(url, path, QUERIES, begin_s, end_s, step_s, token, reduced, complain)
    entry: dict[str, JsonValue] = {
        "file": str(path),
        "answers": done.answers,
        "series": done.series,
    }
    if not printing.listed([entry]):
        say(f"{path}: {done.answers:,} answers, {done.series:,} series")
        say(f"then: ettr ingest STORE {shlex.quote(str(path))} --cluster NAME")


# -- `ettr watch`: a store that stays up to date, served as metrics, JSON and a page -------------

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
