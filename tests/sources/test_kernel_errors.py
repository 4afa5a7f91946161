"""Kernel messages beyond XIDs: planted lines with the events and symptoms that must come of them.

The lines are written by hand after the format strings of the drivers.
"""

import gzip
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ettr.errors import SourceError
from ettr.sources.base import ReadOptions
from ettr.sources.ingest import ingest_file
from ettr.sources.node_health.kernel_xid import Marks, package_forms
from ettr.sources.registry import named
from ettr.store import open_store
from ettr.taxonomy import load_taxonomy
from source_samples import read_all, rows_of

KERNEL = named("kernel-xid")
AT = "2026-03-01T10:00:00+00:00 n1 kernel: "
XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
BEGUN = datetime(2026, 2, 28, tzinfo=UTC)
GIVEN = ReadOptions(timezone="UTC", cluster="c", start=BEGUN)

# message, code, entity, symptom, whether it is a fault of the node
PLANTED = (
    (
        "amdgpu 0000:68:00.0: amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) "
        "detected!",
        ("amdgpu-ras-uncorrectable", "0000:68:00", "gpu-unavailable", True),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
        ("amdgpu-umc-uncorrectable", "0000:0c:00", "gpu-memory", True),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: socket: 0, die: 1, 3 new correctable hardware errors "
        "detected in umc block",
        ("amdgpu-umc-correctable", "0000:0c:00", "gpu-memory", False),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: 1 uncorrectable hardware errors detected in sdma block",
        ("amdgpu-ras-uncorrectable", "0000:0c:00", "gpu-unavailable", True),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: 1 uncorrectable hardware errors detected in xgmi_wafl block",
        ("amdgpu-xgmi-uncorrectable", "0000:0c:00", "nvlink", True),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!",
        ("amdgpu-reset", "0000:0c:00", "gpu-unavailable", False),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: GPU reset end with ret = -110",
        ("amdgpu-reset-failed", "0000:0c:00", "gpu-unavailable", True),
    ),
    ("mce: [Hardware Error]: Machine check events logged", ("mce", None, "node-hardware", False)),
    (
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400",
        ("mce-uncorrected", None, "node-hardware", True),
    ),
    (
        "[Hardware Error]: Corrected error, no action required.",
        ("mce-corrected", None, "node-hardware", False),
    ),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        ("edac-corrected", "MC0", "main-memory", False),
    ),
    (
        "EDAC MC2: 1 UE memory scrubbing error on CPU_SrcID#1_MC#2_Chan#0_DIMM#1 (channel:0)",
        ("edac-uncorrected", "MC2", "main-memory", True),
    ),
    (
        "Memory failure: 0x2b9f35: recovery action for dirty LRU page: Recovered",
        ("memory-failure", "2b9f35", "main-memory", True),
    ),
    (
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        ("aer-fatal", "0000:41:00", "pcie", True),
    ),
    (
        "pcieport 0000:40:01.1: AER: Multiple Uncorrectable (Non-Fatal) error message received "
        "from 0000:41:00.0",
        ("aer-nonfatal", "0000:41:00", "pcie", False),
    ),
    (
        "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
        ("aer-corrected", "0000:41:00", "pcie", False),
    ),
    (
        "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        ("aer-fatal", "0000:1b:00", "pcie", True),
    ),
    ("mlx5_core 0000:4b:00.0 ibp75s0: Link down", ("ib-link-down", "ibp75s0", "infiniband", True)),
    (
        "mlx5_core 0000:4b:00.0 enp75s0f0: Link down",
        ("eth-link-down", "enp75s0f0", "ethlink", True),
    ),
    (
        "igb 0000:05:00.0 eth1: igb: eth1 NIC Link is Down",
        ("eth-link-down", "eth1", "ethlink", True),
    ),
    (
        "mlx5_core 0000:4b:00.0: poll_health:739:(pid 0): Fatal error 1 detected",
        ("mlx-fatal", "0000:4b:00", "infiniband", True),
    ),
    (
        "mlx5_core 0000:4b:00.0: poll_health:825:(pid 0): device's health compromised - reached "
        "miss count",
        ("mlx-fatal", "0000:4b:00", "infiniband", True),
    ),
    (
        "mlx5_core 0000:4b:00.0: Port module event[error]: module 0, Cable error, Bus stuck",
        ("mlx-module", "0000:4b:00", "infiniband", True),
    ),
    (
        "Kernel panic - not syncing: Fatal machine check",
        ("panic-hardware", None, "node-hardware", True),
    ),
    (
        "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
        ("panic", None, "system-services", True),
    ),
    (
        "watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python:4711]",
        ("lockup", "17", "system-services", False),
    ),
    (
        "INFO: task python:4711 blocked for more than 120 seconds.",
        ("hung-task", "python:4711", "system-services", False),
    ),
    (
        "Out of memory: Killed process 4711 (python) total-vm:9000kB, anon-rss:8000kB",
        ("oom-kill", "4711", "oom", False),
    ),
    (
        "Memory cgroup out of memory: Killed process 4711 (python) total-vm:9000kB",
        ("oom-kill", "4711", "oom", False),
    ),
    (
        "LustreError: 11-0: scratch-OST0001-osc-ffff8f: operation ost_write to node 10.0.0.1@o2ib "
        "failed: rc = -107",
        ("lustre-error", "scratch-OST0001", "filesystem", False),
    ),
    (
        "LustreError: 167-0: scratch-MDT0000-mdc-ffff8f: This client was evicted by "
        "scratch-MDT0000; in progress operations using this service will fail.",
        ("lustre-evicted", "scratch-MDT0000", "filesystem", False),
    ),
    (
        "nfs: server fs1.example.org not responding, timed out",
        ("nfs-not-responding", "fs1.example.org", "filesystem", False),
    ),
    (
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        ("nvme-down", "nvme0", "node-hardware", True),
    ),
    (
        "nvme nvme1: I/O 512 QID 9 timeout, aborting",
        ("nvme-timeout", "nvme1", "node-hardware", False),
    ),
    (
        "blk_update_request: I/O error, dev nvme0n1, sector 1048 op 0x1:(WRITE)",
        ("io-error", "nvme0n1", "filesystem", True),
    ),
    (
        "CPU12: Package temperature above threshold, cpu clock throttled (total events = 3)",
        ("thermal-throttle", "12", "node-hardware", False),
    ),
    (
        "thermal thermal_zone0: critical temperature reached (105 C), shutting down",
        ("thermal-shutdown", None, "node-hardware", True),
    ),
    (
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=7, emitted",
        ("amdgpu-ring-timeout", None, "gpu-driver", False),
    ),
    (
        "amdgpu 0000:0c:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!",
        ("amdgpu-over-temperature", "0000:0c:00", "gpu-unavailable", True),
    ),
    (
        "mce: [Hardware Error]: CPU 9: Machine Check: 0 Bank 5: bea0000000000108",
        ("mce-uncorrected", None, "node-hardware", True),
    ),
    (
        "EDAC MC0: UE page 0x7f, offset 0x0",
        ("edac-uncorrected", "MC0", "main-memory", True),
    ),
    (
        "pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: id=4008",
        ("aer-fatal", None, "pcie", True),
    ),
    ("mlx5_ib: mlx5_0: Port: 1 Link DOWN", ("ib-link-down", "1", "infiniband", True)),
    ("tg3 0000:02:00.0 eth0: link down", ("eth-link-down", "eth0", "ethlink", True)),
    (
        "mlx5_core 0000:4b:00.0: print_health_info:431: Health issue observed, firmware internal "
        "error, severity(3) ERROR:",
        ("mlx-fatal", "0000:4b:00", "infiniband", True),
    ),
    (
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        ("kernel-bug", None, "system-services", False),
    ),
    (
        "nvme0n1: I/O Cmd(0x2) @ LBA 64, 8 blocks, I/O Error (sct 0x2 / sc 0x81) MORE",
        ("io-error", "nvme0n1", "filesystem", True),
    ),
)
HARMLESS = (
    "amdgpu 0000:0c:00.0: amdgpu: 0 correctable hardware errors detected in umc block",
    "amdgpu 0000:0c:00.0: amdgpu: GPU reset(2) succeeded!",
    "EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0",
    "mce: [Hardware Error]: TSC 0 ADDR 1fe3a40 MISC 90840a0008000086",
    "mlx5_core 0000:4b:00.0 ibp75s0: Link up",
    "nfs: server fs1 OK",
    "CPU12: Package temperature/speed normal (total events = 3)",
    "---[ end Kernel panic - not syncing: Fatal machine check ]---",
    "pcieport 0000:40:01.1: AER: enabled with IRQ 34",
)


def _log(tmp_path: Path, text: str | bytes, name: str = "messages") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(("message", "wanted"), PLANTED, ids=[row[1][0] for row in PLANTED])
def test_an_error_of_the_kernel_is_an_event_with_its_symptom(
    tmp_path: Path, message: str, wanted: tuple[str, str | None, str, bool]
) -> None:
    for stamp in (AT, AT + "[ 8390.785329] ", "[Sun Mar  1 10:00:00 2026] ", "[  12.500000] "):
        log = _log(tmp_path, f"{stamp}usb 1-1: new device\n{stamp}{message}\n", "n1.dmesg")
        (event,) = rows_of(read_all(KERNEL, log, GIVEN), "events")
        code, entity, symptom, is_fault = wanted
        assert (event["check"], event["code"], event["entity"]) == ("kernel", code, entity)
        assert (event["node"], event["message"]) == ("n1", message)
        verdict = load_taxonomy().classify("kernel", code, event["severity"])
        assert verdict is not None
        assert (verdict.symptom, verdict.is_node_fault) == (symptom, is_fault)


def test_what_is_known_to_be_no_error_is_skipped(tmp_path: Path) -> None:
    log = _log(tmp_path, "".join(f"{AT}{message}\n" for message in HARMLESS))
    batches = read_all(KERNEL, log, GIVEN)
    assert rows_of(batches, "events") == rows_of(batches, "rejects") == []
    assert sum(batch.rows_skipped for batch in batches) == len(HARMLESS)


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Xid (PCI:0000:1b:00 of another form",
        "nvidia-nvswitch0: SXid (of another form",
        "radeon: uncorrectable hardware error of another form",
        "foo: AER: Uncorrected something",
    ],
)
def test_a_line_with_a_mark_that_fits_no_form_is_a_reject(tmp_path: Path, message: str) -> None:
    (reject,) = rows_of(read_all(KERNEL, _log(tmp_path, f"{AT}{message}\n"), GIVEN), "rejects")
    assert (reject["line"], reject["reason"]) == (1, "unknown-form")


def test_the_words_in_a_line_of_another_program_are_no_event(tmp_path: Path) -> None:
    lines = "2026-03-01T10:00:00+00:00 n1 app[3]: it quotes Kernel panic - not syncing: x\n"
    batches = read_all(KERNEL, _log(tmp_path, lines + AT + "usb\n"), GIVEN)
    assert rows_of(batches, "events") == rows_of(batches, "rejects") == []


def test_a_gpu_fallen_off_the_bus_in_three_lines(tmp_path: Path) -> None:
    first = "NVRM: The NVIDIA GPU 0000:b3:00.0"
    rest = (
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    stamp = "[Sun Mar  1 10:00:00 2026] "
    forms = (
        stamp + first + "".join(f"\n{' ' * len(stamp)}{line}" for line in rest) + "\n",
        "".join(f"{stamp}{line}\n" for line in (first, *rest)),
        f"{AT}{first}\n{AT}#012{rest[0]}\n{AT}{rest[1]}\n",
        AT + "#012".join((first, *rest)) + "\n",
    )
    for text in forms:
        batches = read_all(KERNEL, _log(tmp_path, text, "n1.dmesg"), GIVEN)
        (event,) = rows_of(batches, "events")
        assert (event["node"], event["code"], event["entity"]) == ("n1", "79", "0000:b3:00")
        assert f"{event['time']:%H:%M:%S}" == "10:00:00"
        assert not rows_of(batches, "rejects")


def test_the_serial_number_of_a_board_is_that_of_the_gpu_named_before_it(tmp_path: Path) -> None:
    """The driver names both before the first XID of a GPU; a number after nothing is of no GPU."""
    gpu = "NVRM: GPU at PCI:0000:1b:00: GPU-3b6ec030-0000-1847-e155-79f635584b4e"
    board = "NVRM: GPU Board Serial Number: 1650000000000"
    record = '{"__REALTIME_TIMESTAMP":"1772359200000000","_HOSTNAME":"n1","_TRANSPORT":"kernel"'
    for lines in (
        [f"{AT}{one}" for one in (board, gpu, board, XID_79)],
        [f'{record},"MESSAGE":"{one}"}}' for one in (board, gpu, board, XID_79)],
    ):
        batches = read_all(KERNEL, _log(tmp_path, "\n".join(lines) + "\n"), GIVEN)
        found = [(one["check"], one["code"], one["entity"]) for one in rows_of(batches, "events")]
        assert found == [("serial", "1650000000000", "0000:1b:00"), ("xid", "79", "0000:1b:00")]
        assert not rows_of(batches, "rejects")


def test_an_injected_xid_is_no_failure_and_a_secondary_one_names_its_cause(tmp_path: Path) -> None:
    of_gpu = AT + "NVRM: Xid (PCI:0000:01:00): "
    text = (
        f"{of_gpu}149, NETIR_LINK_EVT Fatal XC0 i1 Link 03 (0x4)\n"
        f"{of_gpu}45, pid=7, name=python3, Ch 00000001 caused by previous Xid 149\n"
    )
    events = rows_of(read_all(KERNEL, _log(tmp_path, text), GIVEN), "events")
    assert [(event["check"], event["code"]) for event in events] == [
        ("xid injected", "149.NETIR_LINK_EVT.fatal"),
        ("xid", "45"),
        ("xid", "149"),
    ]
    taxonomy = load_taxonomy()
    assert taxonomy.classify("xid injected", events[0]["code"], "unknown") is None
    assert taxonomy.knows("xid injected", events[0]["code"])


def test_a_cause_that_has_a_line_of_its_own_is_counted_once(tmp_path: Path) -> None:
    of_gpu = AT + "NVRM: Xid (PCI:0000:01:00): "
    text = f"{of_gpu}31, pid=7, MMU Fault\n{of_gpu}45, pid=7, Ch 1 caused by previous Xid 31\n"
    events = rows_of(read_all(KERNEL, _log(tmp_path, text), GIVEN), "events")
    assert [event["code"] for event in events] == ["31", "45"]


PRETTY = """{
\t"__REALTIME_TIMESTAMP" : "1772359200000000",
\t"_HOSTNAME" : "n1",
\t"_TRANSPORT" : "kernel",
\t"MESSAGE" : "%s"
}
{
\t"__REALTIME_TIMESTAMP" : "1772359201000000",
\t"_HOSTNAME" : "n1",
\t"_TRANSPORT" : "kernel",
\t"MESSAGE" : "usb 1-1: reset"
}
"""
DMESG_JSON = """{
   "dmesg": [
      {
         "pri": 3,
         "time": 36000.123456,
         "msg": "%s"
      },{
         "pri": 6,
         "time": 36001.123456,
         "msg": "usb 1-1: reset"
      }
   ]
}
"""
EXPORT = (
    "__CURSOR=s=1;i=1\n__REALTIME_TIMESTAMP=1772359200000000\n_HOSTNAME=n1\n_TRANSPORT=kernel\n"
    "MESSAGE=%s\n\n"
)
WRAPPED = {
    "rfc5424": (
        "<3>1 2026-03-01T10:00:00.000000+00:00 n1 kernel - - - %s\n"
        "<6>1 2026-03-01T10:00:01.000000+00:00 n1 kernel - - - usb 1-1: reset\n"
    ),
    "rfc5424-structured": '<3>1 2026-03-01T10:00:00Z n1 kernel - - [a@1 b="c d"] %s\n',
    "dmesg-json": DMESG_JSON,
    "kmsg": "3,1234,36000123456,-;%s\n6,1235,36000223456,-;usb 1-1: reset\n",
    "cri": (
        "2026-03-01T10:00:00.000000000Z stderr F [36000.123456] %s\n"
        "2026-03-01T10:00:01.000000000Z stderr F [36001.123456] usb 1-1: reset\n"
    ),
    "json-pretty": PRETTY,
    "export": EXPORT,
    "short-full": (
        "Sun 2026-03-01 10:00:00 UTC n1 kernel: %s\n"
        "Sun 2026-03-01 10:00:01 UTC n1 kernel: usb 1-1: reset\n"
    ),
    "short-unix": (
        "1772359200.123456 n1 kernel: %s\n1772359201.123456 n1 kernel: usb 1-1: reset\n"
    ),
    "brackets": "[2026-03-01 10:00:00,123456+00:00] %s\n",
    "grep": "n1.dmesg:[Sun Mar  1 10:00:00 2026] %s\nn1.dmesg:[Sun Mar  1 10:00:01 2026] usb\n",
    "clush": "---------------\nn1\n---------------\n[Sun Mar  1 10:00:00 2026] %s\n",
    "byte-order-mark": "\ufeff[Sun Mar  1 10:00:00 2026] %s\n",
}


@pytest.mark.parametrize("message", [XID_79, PLANTED[1][0]], ids=["xid", "amdgpu"])
@pytest.mark.parametrize("wrapping", list(WRAPPED))
def test_each_wrapping_of_a_kernel_log_is_read(tmp_path: Path, wrapping: str, message: str) -> None:
    path = _log(tmp_path, WRAPPED[wrapping] % message, "n1.dmesg")
    with open_store(str(tmp_path / "store"), create=True) as store:
        done = ingest_file(store, path, GIVEN)
        assert (done.source, done.rows_kept, done.rows_rejected) == ("kernel-xid", 1, 0)
        (event,) = rows_of(read_all(KERNEL, path, GIVEN), "events")
    assert (event["node"], event["message"]) == ("n1", message)
    # seconds since boot begin at the start given
    assert f"{event['time']:%d %H:%M:%S}" in {"01 10:00:00", "28 10:00:00"}
    days = rows_of(read_all(KERNEL, path, GIVEN), "log_days")
    assert [day["node"] for day in days] == ["n1"]


def test_a_block_of_several_nodes_counts_for_each(tmp_path: Path) -> None:
    ruler = "-" * 16
    text = (
        f"{ruler}\nnode[18-19] (2)\n{ruler}\n[Sun Mar  1 10:00:00 2026] {XID_79}\n"
        f"{ruler}\nnode20\n{ruler}\n[Sun Mar  1 10:00:05 2026] usb 1-1: reset\n"
    )
    batches = read_all(KERNEL, _log(tmp_path, text, "all-nodes.txt"), GIVEN)
    assert [row["node"] for row in rows_of(batches, "events")] == ["node18", "node19"]
    assert {row["node"] for row in rows_of(batches, "log_days")} == {"node18", "node19", "node20"}
    assert [row["line"] for row in rows_of(batches, "events")] == [4, 4]


def test_a_binary_field_of_an_export(tmp_path: Path) -> None:
    message = b"NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:2330) installed\n"
    message += b"NVRM: fallen off the bus and is not responding to commands."
    record = b"__REALTIME_TIMESTAMP=1772359200000000\n_HOSTNAME=n1\n_TRANSPORT=kernel\nMESSAGE\n"
    record += len(message).to_bytes(8, "little") + message + b"\n\n"
    batches = read_all(KERNEL, _log(tmp_path, record + EXPORT.replace("%s", "usb").encode()), GIVEN)
    (event,) = rows_of(batches, "events")
    assert (event["code"], event["entity"], event["line"]) == ("79", "0000:b3:00", 1)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("n1.dmesg", "[So Mär  1 10:00:00 2026] usb 1-1: reset\n".encode(), "LC_ALL=C dmesg -T"),
        ("n1.dmesg", b"[dim. mars  1 10:00:00 2026] usb\n", "LC_ALL=C dmesg -T"),
        ("a.zip", b"PK\x03\x04" + bytes(60), "zip archive; unpack it first"),
        ("a.tar", bytes(257) + b"ustar\x0000" + bytes(300), "tar archive; unpack it first"),
        (
            "a.tar.gz",
            gzip.compress(bytes(257) + b"ustar\x0000", mtime=0),
            "tar archive; unpack it first",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    path = _log(tmp_path, data, name)
    with (
        open_store(str(tmp_path / "store"), create=True) as store,
        pytest.raises(SourceError, match=re.escape(words)),
    ):
        ingest_file(store, path, GIVEN)


def test_rows_of_a_site_are_read_and_judged(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(
        '[[kernel]]\ncode = "fpga-lost"\nmark = "xdma: card lost"\n'
        'pattern = "xdma: card lost in slot (?P<entity>[0-9]+)"\nentity_type = "SLOT"\n'
        'symptom = "node-hardware"\nnode_fault = true\n'
    )
    taxonomy = load_taxonomy(site)
    options = ReadOptions(timezone="UTC", kernel=taxonomy.site_kernel)
    log = _log(tmp_path, f"{AT}xdma: card lost in slot 3\n{AT}{XID_79}\n")
    own, xid = rows_of(read_all(KERNEL, log, options), "events")
    assert (own["code"], own["entity_type"], own["entity"]) == ("fpga-lost", "SLOT", "3")
    assert xid["code"] == "79"
    verdict = taxonomy.classify("kernel", "fpga-lost", "unknown")
    assert verdict is not None
    assert verdict.is_node_fault


def test_each_row_has_a_mark_that_its_line_must_hold() -> None:
    taxonomy = load_taxonomy()
    rows = package_forms().rows
    assert all(row.source and (row.symptom is None or row.code) for row in rows)
    assert {row.symptom for row in rows} - {None} <= set(taxonomy.symptoms)


def test_marks_are_found_wherever_they_begin() -> None:
    texts = [b"[Hardware Error]", b"GPU reset", b"blocked for more than"]
    marks = Marks(texts)
    for text in texts:
        for n_before in range(9):
            block = b"x" * 50 + b"\n" + b"y" * n_before + text + b" z\n" + b"GPU rese\n"
            assert marks.lines(block) == {51}
    assert marks.lines(b"") == marks.lines(b"\n") == set()
    with pytest.raises(ValueError, match="fewer than 7"):
        Marks([b"short"])


def _blocks() -> Iterator[bytes]:
    words = (
        "usb 1-1: new high-speed USB device number 3 using xhci_hcd",
        "IPv6: ADDRCONF(NETDEV_CHANGE): veth12: link becomes ready",
        "perf: interrupt took too long (2501 > 2500), lowering the sample rate",
        "docker0: port 1(veth12) entered forwarding state",
        "mlx5_core 0000:4b:00.0 ibp75s0: Link up",
        "audit: type=1400 audit(1772.1:2): operation profile_load name snap",
    )
    block = "".join(
        f"2026-03-01T10:{i // 60 % 60:02d}:{i % 60:02d}.123456+00:00 n{i % 97:02d} kernel: "
        f"[{36000 + i}.123456] {words[i % len(words)]}\n"
        for i in range(10_000)
    ).encode()
    for _ in range(30):
        yield block


def test_looking_for_all_marks_costs_about_as_much_as_for_two() -> None:
    """In one run, since machines differ: before these rows two texts were looked for."""
    marks = package_forms().marks

    def seconds(work: object) -> float:
        begun = time.process_time()
        for block in _blocks():
            work(block)  # type: ignore[operator]
        return time.process_time() - begun

    before = min(seconds(lambda b: (b.find(b"Xid"), b.find(b"fallen off the bus"))) for _ in "ab")
    after = min(seconds(marks.lines) for _ in "ab")
    # looking is a third of what reading costs
    assert after < 1.5 * before
