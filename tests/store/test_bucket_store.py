"""A store in object storage: each commit has one winner, and no fault of the server loses rows."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli.program import ettr, write_logs
from ettr import object_storage
from ettr.errors import StoreError, UsageError
from ettr.store import Access, bucket, open_store
from store.object_server import ObjectServer, object_server
from store.test_store import NOON, attempts, ingest, states

pytest.importorskip("obstore")
URL = "s3://logs/site"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    with object_server() as running:
        for name, value in environment(running, tmp_path).items():
            monkeypatch.setenv(name, value)
        yield running


def environment(server: ObjectServer, folder: Path) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "hush-hush",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }


def put(file_id: str, *jobs: str) -> None:
    with open_store(URL, create=True) as store:
        ingest(store, file_id, attempts(file_id, *((job, "FAILED", NOON) for job in jobs)))


def jobs() -> set[str]:
    with open_store(URL) as store:
        rows = store.rows("attempts").to_pylist()
        assert {row["file_id"] for row in rows} <= {file.file_id for file in store.files()}
        return set(states(store))


def test_what_was_put_is_there_for_another_machine_that_may_only_read(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put("f1", "1", "2")
    put("f2", "3")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    server.is_read_only = True
    assert jobs() == {"1", "2", "3"}
    with pytest.raises(StoreError, match="credentials") as refused:
        put("f3", "4")
    assert "hush" not in str(refused.value)
    assert not any(b"hush" in data or b"AKIA" in data for data in server.objects.values())


def test_a_commit_takes_four_requests_beside_its_parts(server: ObjectServer) -> None:
    put("f1", "1")
    with open_store(URL, create=True) as store:
        before = len(server.requests)
        ingest(store, "f2", attempts("f2", ("2", "FAILED", NOON)))
        asked = [line for line in server.requests[before:] if "/parts/" not in line]
    assert len(asked) <= 4, asked


def test_a_server_that_ignores_the_condition_is_refused_at_the_first_commit(
    server: ObjectServer,
) -> None:
    server.is_conditional = False
    with pytest.raises(StoreError, match="ignores If-None-Match"):
        put("f1", "1")
    server.is_conditional = True
    put("f1", "1")
    server.is_conditional = False  # the store was moved to another server
    with pytest.raises(StoreError, match="ignores If-None-Match"):
        put("f2", "2")
    assert jobs() == {"1"}


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_google_and_azure_hold_a_store_by_their_own_requests(
    scheme: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    account = {"gcs_base_url": server.endpoint, "disable_oauth": True}
    account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "account.json"))
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.endpoint)
    monkeypatch.setattr(f"{__name__}.URL", f"{scheme}://logs/site")
    put("f1", "1")
    put("f2", "2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert jobs() == {"1", "2"}
    server.is_conditional = False
    with pytest.raises(StoreError, match="ignores If-None-Match"):
        put("f3", "3")


def test_a_server_of_the_sites_own_ca_is_trusted_where_its_certificate_is_named(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    new, days = ("-newkey", "rsa:2048", "-nodes"), ("-days", "2")
    leaf = ("-CAcreateserial", "-extfile", "names", "-out", "cert.pem")
    for words in (
        ("req", "-x509", *new, *days, "-subj", "/CN=CA", "-keyout", "ca.key", "-out", "ca.pem"),
        ("req", *new, "-subj", "/CN=store", "-keyout", "key.pem", "-out", "asked.pem"),
        ("x509", "-req", "-in", "asked.pem", *days, "-CA", "ca.pem", "-CAkey", "ca.key", *leaf),
    ):
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint.replace("http", "https"))
    with pytest.raises(StoreError, match="does not answer"):
        put("f1", "1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    put("f1", "1")
    assert jobs() == {"1"}


def test_a_server_that_never_answers_ends_in_a_sentence(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "_TIMEOUT_S", 0.2)
    monkeypatch.setattr(object_storage, "_RETRY_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        with pytest.raises(StoreError, match="does not answer as it should"):
            put("f1", "1")


@pytest.mark.slow
def test_of_writers_at_once_each_commit_has_one_winner_and_nothing_is_lost(
    server: ObjectServer,
) -> None:
    put("f0", "0")

    def write(number: int) -> None:
        for turn in range(3):
            put(f"f{number}-{turn}", f"{number}-{turn}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert jobs() == {"0"} | {f"{n}-{turn}" for n in range(4) for turn in range(3)}
    manifests = [key for key in server.objects if "/manifest/" in key]
    assert len(manifests) == 1 + 1 + 12  # an empty store, f0, and one for each commit


@pytest.mark.parametrize("fault", ["503", "cut", "flip", "lost"])
def test_what_comes_late_cut_or_changed_is_asked_for_again(
    fault: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if fault == "lost":
        server.faults["PUT logs/site/manifest"] = [fault]
    elif fault == "503":
        server.faults["PUT"] = [fault, fault]
    put("f1", "1")
    server.faults["GET logs/site/parts/attempts"] = [fault] * 2 if fault != "lost" else []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert jobs() == {"1"}
    assert not any(server.faults.values())


def test_what_stays_changed_is_told_in_a_sentence(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put("f1", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    server.faults["GET logs/site/parts/attempts"] = ["flip"] * 99
    with pytest.raises(StoreError, match=r"parts/attempts.*corrupt or missing: its checksum is"):
        jobs()


def test_a_part_that_changed_in_the_cache_is_not_read(server: ObjectServer, tmp_path: Path) -> None:
    put("f1", "1")
    (part,) = (tmp_path / "cache").rglob("parts/attempts/*.parquet")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(StoreError, match="its checksum is"):
        jobs()


KILLED = """
from store.test_bucket_store import put
put("f2", "2", "3")
"""


def test_a_process_killed_at_the_manifest_leaves_the_store_or_the_commit(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("f1", "1")
    victim: list[subprocess.Popen[bytes]] = []

    def kill(label: str) -> bool:
        is_commit = label == f"PUT logs/site/manifest/{2:020}.json"
        if is_commit:
            victim[0].kill()
        return is_commit

    for when, left in (("before", {"1"}), ("after", {"1", "2", "3"})):
        with monkeypatch.context() as patched:
            patched.setattr(server, when, kill)
            victim[:] = [run_killed(server, tmp_path)]
            assert victim[0].wait() == -signal.SIGKILL
        assert jobs() == left
    put("f2", "2", "3")
    assert jobs() == {"1", "2", "3"}


def run_killed(server: ObjectServer, folder: Path) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join(sys.path)
    environ = {**os.environ, **environment(server, folder), "PYTHONPATH": paths}
    return subprocess.Popen([sys.executable, "-c", KILLED], env=environ)


def test_what_was_replaced_is_removed_after_a_day_and_a_reader_of_yesterday_keeps_its_parts(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bucket, "_LEAST_KEPT", 1)
    monkeypatch.setattr(bucket, "_SWEEP_EVERY", 1)
    put("f1", "1")
    put("f2", "1")  # replaces the row
    gone = parts_of(server, "f1")
    with open_store(URL) as reader:
        server.day = 5
        put("f3", "1", "2")
        put("f4", "3")
        assert not gone & server.objects.keys()
        monkeypatch.setattr(reader, "_folder", tmp_path / "empty")
        assert set(states(reader)) == {"1"}
    assert jobs() == {"1", "2", "3"}
    assert len([key for key in server.objects if "/manifest/" in key]) == 3


def test_a_part_that_was_replaced_today_stays_however_old_it_is(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few manifests are old, so that all are kept: not the oldest counts, but the one a day ago."""
    monkeypatch.setattr(bucket, "_SWEEP_EVERY", 1)
    put("f1", "1")
    kept = parts_of(server, "f1")
    server.day = 5
    put("f2", "1")
    put("f3", "2")
    assert kept <= server.objects.keys()


def parts_of(server: ObjectServer, file_id: str) -> set[str]:
    return {key for key in server.objects if f"/attempts/{file_id}" in key}


def test_the_command_line_ingests_and_reports(server: ObjectServer, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    logs = write_logs(tmp_path / "logs")
    done = ettr("ingest", URL, *logs, "--timezone", "UTC")
    assert done.code == 0, done.err
    report = ettr("report", URL, "-o", tmp_path / "r.html")
    assert report.code == 0, report.err
    assert "hush" not in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("url", ["s3://key:hush@logs/site", "s3://logs/site?secret=hush", "s3://a"])
def test_a_url_with_more_or_less_than_a_prefix_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(StoreError, match="give") as refused:
        open_store(url)
    assert "hush" not in str(refused.value)


def test_rights_of_files_are_not_for_object_storage() -> None:
    with pytest.raises(UsageError, match="grant the rights there"):
        open_store(URL, create=True, readable_by=Access.ALL)
