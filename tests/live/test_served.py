"""What is served: counters that never fall, JSON and page, and who may ask."""

from __future__ import annotations

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ettr.analysis import Assumptions
from ettr.errors import UsageError
from ettr.live.exposition import FAMILIES, STATE, Counted, Moment, openmetrics
from ettr.live.server import Address, Served, serve
from ettr.live.watching import StoreWatch, WatchPlan
from ettr.report.registry import PARTS
from ettr.sources.base import ReadOptions

HEADER = (
    "Cluster|JobID|JobName|User|Partition|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw"
    "|NNodes|NodeList|AllocTRES"
)
JOB = (
    "c|{n}|train|ann|gpu|NODE_FAIL|1:0|2026-03-0{n}T00:00:00|2026-03-0{n}T00:00:00"
    "|2026-03-0{n}T00:00:00|2026-03-0{n}T12:00:00|43200|2|n[1-2]|cpu=128,gres/gpu=16,node=2"
)
XID = (
    "2026-03-0{n}T11:59:00+00:00 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', "
    "name=<unknown>, GPU has fallen off the bus.\n"
)
NOW = datetime(2026, 3, 4, tzinfo=UTC)


def watch(folder: Path, **plan: object) -> StoreWatch:
    given = WatchPlan(
        folder / "site",
        (str(folder / "*.psv"), str(folder / "*.log")),
        ReadOptions(timezone="UTC", cluster="c"),
        **plan,  # type: ignore[arg-type]
    )
    return StoreWatch(given, Assumptions(), lambda: NOW, lambda _: None, lambda _: None)


def sacct(folder: Path, *numbers: int) -> None:
    lines = [HEADER, *(JOB.format(n=n) for n in numbers)]
    (folder / "sacct.psv").write_text("\n".join(lines) + "\n")


def values(metrics: bytes, name: str) -> dict[str, float]:
    lines = [line for line in metrics.decode().splitlines() if line.startswith(name)]
    return {key: float(value) for key, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_later_log_changes_a_cause_and_no_counter_falls(tmp_path: Path) -> None:
    from ettr.store import open_store

    open_store(tmp_path / "site", create=True).close()
    sacct(tmp_path, 1, 2)
    first = watch(tmp_path, with_page=False)
    first.look()
    before = values(first.served.metrics, "ettr_failures_counted_total")
    assert sum(before.values()) == 2
    assert all('symptom="unattributed"' in key and 'partition="gpu"' in key for key in before)
    # the kernel's log of one of them comes late; another process goes on
    (tmp_path / "kernel.log").write_text(XID.format(n=2))
    second = watch(tmp_path, with_page=False)
    second.look()
    metrics = second.served.metrics
    assert values(metrics, "ettr_failures_counted_total") == before
    (change,) = values(metrics, "ettr_failure_cause_changes_total").items()
    assert 'from="unattributed"' in change[0]
    assert change[1] == 1
    now = values(metrics, "ettr_failures{")
    assert sorted(now.values()) == [1, 1]
    assert sum('symptom="unattributed"' in key for key in now) == 1
    # a day of two nodes, and 12 hours of 16 GPUs, twice
    (days,) = values(metrics, "ettr_node_days_total").values()
    assert days == pytest.approx(2.0)
    assert values(metrics, 'ettr_gpu_hours_total{bucket="ran"}') == {
        'ettr_gpu_hours_total{bucket="ran"}': 2 * 12 * 16
    }
    # without its file the counters begin with the view of now
    (tmp_path / "site" / STATE).write_text("torn")
    third = watch(tmp_path, with_page=False)
    third.look()
    assert sum(values(third.served.metrics, "ettr_failures_counted_total").values()) == 2


def test_a_failure_that_was_none_is_counted_apart() -> None:
    counted = Counted()
    counted.count({"a": ("x", "d", "p", "8"), "b": ("x", "d", "p", "8")})
    counted.count({"a": ("y", "d", "p", "8")})
    assert counted.counts["ettr_failures_counted"] == {("x", "d", "p", "8"): 2}
    assert counted.counts["ettr_failures_withdrawn"] == {(): 1}
    assert counted.counts["ettr_failure_cause_changes"] == {("x", "y"): 1}
    counted.count({"a": ("y", "d", "p", "8"), "b": ("x", "d", "p", "8")})
    assert counted.counts["ettr_failures_counted"] == {("x", "d", "p", "8"): 2}
    assert counted.raised("ettr_node_days", {("p",): 5.0}) == {("p",): 5.0}
    assert counted.raised("ettr_node_days", {("p",): 4.0}) == {("p",): 5.0}


def asked(port: int, path: str, token: str = "") -> tuple[int, str, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def test_answers_are_served_read_only_and_for_a_token(tmp_path: Path) -> None:
    from ettr.store import open_store

    open_store(tmp_path / "site", create=True).close()
    sacct(tmp_path, 1)
    made = watch(tmp_path)
    server = serve(Address(port=0, token="t" * 20), lambda: made.served)
    port = server.server_address[1]
    try:
        assert asked(port, "/healthz")[0] == 401
        assert asked(port, "/healthz", "t" * 20)[0] == 503
        made.look()
        status, kind, metrics = asked(port, "/metrics", "t" * 20)
        assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
        assert metrics.endswith(b"# EOF\n")
        whole = json.loads(asked(port, "/report.json", "t" * 20)[2])
        assert whole["format"] == "ettr-report"
        # each metric of the registry by itself
        metrics_asked = ("failures", "slo", "goodput")
        alone = [json.loads(asked(port, f"/{n}.json", "t" * 20)[2]) for n in metrics_asked]
        assert alone == [whole[name] for name in metrics_asked]
        assert PARTS.keys() <= whole.keys()
        assert b"<!DOCTYPE html>" in asked(port, "/", "t" * 20)[2][:200]
        assert json.loads(asked(port, "/healthz", "t" * 20)[2])["ok"] is True
        assert asked(port, "/etc/passwd", "t" * 20)[0] == 404
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", b"data", timeout=10)
    finally:
        server.shutdown()
        server.server_close()


def test_a_client_that_speaks_no_tls_leaves_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem")
    words = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    subprocess.run([*words, *both], check=True, capture_output=True)
    keys = {"cert": tmp_path / "cert.pem", "key": tmp_path / "key.pem"}
    server = serve(Address(port=0, **keys), lambda: Served(metrics=b"# EOF\n"))
    host = f"127.0.0.1:{server.server_address[1]}"
    try:
        with pytest.raises(OSError, match=r"."):
            urllib.request.urlopen(f"http://{host}/metrics", timeout=30)
        context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        context.check_hostname = False
        with urllib.request.urlopen(f"https://{host}/metrics", timeout=30, context=context) as got:
            assert got.read() == b"# EOF\n"
    finally:
        server.shutdown()
        server.server_close()
    assert capsys.readouterr().err == ""


def test_other_machines_need_a_token() -> None:
    with pytest.raises(UsageError, match="other machines reach it; give token-file"):
        serve(Address(host="0.0.0.0", port=0), Served)  # noqa: S104 - refused


@pytest.mark.prometheus
def test_hostile_labels_are_one_sample_each(tmp_path: Path) -> None:
    """What a log may call a node: quotes, lines, backslashes, letters, what ends a file."""
    nodes = ['a"b', "a\\", "a\nettr_nodes 7\n# EOF", "b\r", "nœud-\u202e", "{x=", ""]
    made = openmetrics([Moment({"ettr_node_failures": {(name,): 1.0 for name in nodes}})])
    found = text_string_to_metric_families(made.decode())
    labels = [one.labels["node"] for family in found for one in family.samples]
    assert sorted(labels) == sorted(nodes)
    asked = ["promtool", "check", "metrics"]
    given = made.replace(b"# EOF\n", b"")
    done = subprocess.run(asked, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_labels_have_few_values() -> None:
    """Whatever the logs hold, no family has a series a job, a user or a failure."""
    assert {label for one in FAMILIES.values() for label in one.labels} == {
        *("symptom", "domain", "partition", "size", "from", "to", "bucket", "node", "jobs"),
        *("bound", "table", "source", "slo"),
    }


def test_times_of_a_family_stand_together() -> None:
    moments = [
        Moment({"ettr_nodes": {(): n}, "ettr_node_days": {("p",): 2.0 * n}}, 100.0 + n)
        for n in (1.0, 2.0)
    ]
    lines = openmetrics(moments).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'ettr_node_days_total{partition="p"} 2.0 101.0',
        'ettr_node_days_total{partition="p"} 4.0 102.0',
        "ettr_nodes 1.0 101.0",
        "ettr_nodes 2.0 102.0",
    ]
