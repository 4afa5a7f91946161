"""What an observation or a reason comes to, and what a site may change."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ettr.errors import UsageError
from ettr.taxonomy import Taxonomy, load_taxonomy

TAXONOMY = load_taxonomy()
SEVERITIES = st.sampled_from(["ok", "warning", "critical", "unknown"])


@pytest.mark.parametrize(
    ("check", "code", "severity", "symptom", "level", "fault"),
    [
        ("xid", "79", "unknown", "gpu-unavailable", "critical", True),
        ("xid", "63", "unknown", "gpu-memory", "warning", False),
        ("xid", "149.NETIR_LINK_EVT.fatal", "unknown", "nvlink", "critical", True),
        ("xid", "149.NETIR_LINK_EVT.nonfatal", "unknown", "nvlink", "warning", False),
        ("sxid", "20034", "critical", "nvlink", "critical", True),
        ("sxid", "24007", "warning", "nvlink", "warning", False),
        ("xid errors", "79", "critical", "gpu-unavailable", "critical", True),
        ("SysLogsXIDError", "XID_79", "critical", "gpu-unavailable", "critical", True),
        ("accelerator-nvidia-error-xid", "48", "critical", "gpu-memory", "critical", True),
        ("check ibstat", None, "critical", "infiniband", "critical", True),
        ("check ibstat", None, "warning", "infiniband", "warning", False),
        ("nvidia smi row_remap_failed", None, "critical", "gpu-memory", "critical", True),
        ("mounted directory", None, "critical", "filesystem", "critical", True),
        ("nhc", "NHC2013", "critical", "gpu-unavailable", "critical", True),
        ("check_fs_mount", None, "critical", "filesystem", "critical", True),
        ("GpuNvlinkWatch", None, "critical", "nvlink", "critical", True),
        ("drain", "nhc:gpu-memory", "unknown", "gpu-memory", "critical", True),
        ("drain", "maintenance", "unknown", "operations", "info", False),
    ],
)
def test_observations(
    check: str, code: str | None, severity: str, symptom: str, level: str, fault: bool
) -> None:
    verdict = TAXONOMY.classify(check, code, severity)
    assert verdict is not None
    assert (verdict.symptom, verdict.severity, verdict.is_node_fault) == (symptom, level, fault)
    assert verdict.why


@pytest.mark.parametrize(
    ("check", "code", "severity"),
    [
        ("check ibstat", None, "ok"),
        ("xid", "106", "unknown"),
        ("xid", "999", "unknown"),
        ("xid", None, "unknown"),
        ("slurmctld", "NODE_FAIL", "critical"),
        ("nhc", "NHCNA", "critical"),
        ("drain", "not-responding", "critical"),
        ("a check that nobody knows", None, "critical"),
    ],
)
def test_what_is_no_sign_of_any_cause(check: str, code: str | None, severity: str) -> None:
    assert TAXONOMY.classify(check, code, severity) is None


def test_a_pointer_and_a_sympathetic_code_are_no_causes() -> None:
    pointer, follower = (TAXONOMY.classify("xid", code, "unknown") for code in ("154", "45"))
    assert pointer is not None
    assert follower is not None
    assert (pointer.pointer, pointer.is_node_fault, pointer.severity) == (True, False, "info")
    assert (follower.sympathetic, follower.is_node_fault) == (True, False)


def test_rank_puts_high_severity_checks_first_and_every_critical_before_a_warning() -> None:
    def rank(check: str, code: str | None, severity: str) -> int:
        verdict = TAXONOMY.classify(check, code, severity)
        assert verdict is not None
        return verdict.rank

    order = [
        rank("xid", "79", "unknown"),
        rank("xid", "48", "unknown"),
        rank("xid", "74", "unknown"),
        rank("check pci", None, "critical"),
        rank("check ibstat", None, "critical"),
        rank("check mountpoint", None, "critical"),
        rank("xid", "119", "unknown"),
        rank("check ibstat", None, "warning"),
        rank("xid", "13", "unknown"),
    ]
    assert order == sorted(order)
    assert len(set(order)) == len(order)


@pytest.mark.parametrize(
    ("text", "reason_class", "symptom", "planned"),
    [
        ("NHC: check_fs_mount:  /home not mounted", "nhc", "filesystem", False),
        ("NHC: something new", "nhc", None, False),
        ("[HC] gpu lost", "health-check", "gpu-unavailable", False),
        ("Not responding [slurm@2024-01-01T00:00:00]", "not-responding", None, False),
        ("Kill task failed", "kill-task-failed", None, False),
        ("Node unexpectedly rebooted", "unexpected-reboot", "node-hardware", False),
        (
            "gres/gpu count reported lower than configured (7 < 8)",
            "gres-count",
            "gpu-unavailable",
            False,
        ),
        ("Low RealMemory (reported:1 < 2)", "low-memory", "main-memory", False),
        ("Prolog error", "prolog-error", "system-services", False),
        ("Action:Replace", "action-replace", "node-hardware", False),
        ("planned MAINTENANCE window", "maintenance", "operations", True),
        ("NHC: XID 79", "nhc", "gpu-unavailable", False),
        ("Xid 48 detected", "manual", "gpu-memory", False),
        ("xid=13 of a user's kernel", "other", None, False),
        ("[HC] gpu memory ecc", "health-check", "gpu-memory", False),
        ("[HC] ib link down", "health-check", "infiniband", False),
        ("GPU ECC error, reboot", "manual", "gpu-memory", False),
        ("GPU lost, maintenance ticket 4711", "manual", "gpu-unavailable", False),
        ("GSP timeout, reboot", "manual", "gpu-driver", False),
        ("upgrade of the GPU driver", "maintenance", "operations", True),
        ("reboot for a new kernel", "reboot", "operations", True),
        # a named fault is no planned work, whatever else is said; a part that is worked on is
        ("maint: gpu ecc", "manual", "gpu-memory", False),
        ("planned maintenance: replace GPU", "maintenance", "operations", True),
        ("planned maintenance: GPU ECC errors", "manual", "gpu-memory", False),
        ("firmware update of mlx5_0", "maintenance", "operations", True),
        ("unplanned maintenance", "manual", None, False),
        ("IB port flapping", "manual", "infiniband", False),
        ("mlx5_0 port down", "manual", "infiniband", False),
        ("HCA failed", "manual", "infiniband", False),
        ("mlx5_0 fell off the bus", "manual", "infiniband", False),
        ("GPU 3 fell off the bus", "gpu", "gpu-unavailable", False),
        ("fell off the bus", "gpu", "gpu-unavailable", False),
        ("power supply failed", "manual", "node-hardware", False),
        ("nvlink down", "manual", "nvlink", False),
        ("eth0 link down", "manual", "ethlink", False),
        ("DIMM A1 ECC error", "manual", "main-memory", False),
        ("Lustre client hung", "manual", "filesystem", False),
        ("node not responding to IPMI", "not-responding", None, False),
        ("Duplicate jobid", "batch-failure", "system-services", False),
        ("batch job complete failure", "batch-failure", "system-services", False),
        ("NHC: check_dcgm: GPU 3 XID 79 fallen off the bus", "nhc", "gpu-unavailable", False),
        ("DCGM: NVLink error on GPU 5", "manual", "nvlink", False),
        ("NVRM: Xid (PCI:0000:1a:00): 48, pid=1", "manual", "gpu-memory", False),
        ("Xid error 79", "manual", "gpu-unavailable", False),
        ("XID 31 on node 79", "other", None, False),
        ("XID 999", "other", None, False),
        ("", "none", None, False),
        ("ask Bob", "other", None, False),
    ],
)
def test_reasons(text: str, reason_class: str, symptom: str | None, planned: bool) -> None:
    verdict = TAXONOMY.classify_reason(text)
    assert (verdict.reason_class, verdict.symptom, verdict.is_planned) == (
        reason_class,
        symptom,
        planned,
    )
    again = TAXONOMY.classify("drain", verdict.code, "unknown")
    assert (again.symptom if again else None) == symptom


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", True),
        ("Not responding", True),
        ("maint", True),
        ("xid=13 of a user's kernel", True),
        ("ask Bob", False),
        ("XID 999", False),
        ("maint, XID 999", False),
        ("NHC: XID 999", False),
        ("GPU error, XID 999", True),
    ],
)
def test_reasons_that_are_known(text: str, known: bool) -> None:
    assert TAXONOMY.knows_reason(text) is known


@given(st.text(), st.none() | st.text(), SEVERITIES)
def test_any_text_is_classified_or_is_not_and_never_fails(
    check: str, code: str | None, severity: str
) -> None:
    for name in (check, "xid", "drain", "infinitehbd"):
        verdict = load_taxonomy_once().classify(name, code, severity)
        assert verdict is None or verdict.symptom in load_taxonomy_once().symptoms
        assert severity != "ok" or verdict is None


@given(st.text())
def test_any_reason_has_a_class(text: str) -> None:
    assert TAXONOMY.classify_reason(text).reason_class


def load_taxonomy_once() -> Taxonomy:
    return TAXONOMY


def test_whom_to_believe_changes_the_verdict() -> None:
    def fault(vendor: str, code: str) -> bool:
        verdict = load_taxonomy(believe=vendor).classify("xid", code, "unknown")
        assert verdict is not None
        return verdict.is_node_fault

    assert [fault(v, "94") for v in ("nvidia", "gpud", "aws")] == [False, True, False]
    assert [fault(v, "109") for v in ("nvidia", "gpud", "aws")] == [True, False, True]


def test_a_silent_vendor_falls_back_and_says_so() -> None:
    verdict = load_taxonomy(believe="aws").classify("xid", "62", "unknown")
    assert verdict is not None
    assert verdict.is_node_fault
    assert "aws is silent" in verdict.why


def test_an_unknown_vendor_is_refused() -> None:
    with pytest.raises(UsageError, match="no vendor named 'acme' to believe; there are: nvidia"):
        load_taxonomy(believe="acme")


def test_catalog_rows() -> None:
    assert len(TAXONOMY.catalog_rows()) == 109
    assert len(TAXONOMY.catalog_rows(conflicts_only=True)) == 25
    (row,) = TAXONOMY.catalog_rows(code=94)
    assert (row["nvidia_node_fault"], row["gpud_node_fault"], row["conflict"]) == (
        False,
        True,
        True,
    )
    assert row["domain"] == "hardware"


TOML = """
believe = "gpud"
[xid.94]
node_fault = false
sticky = true
[xid.500]
symptom = "liquid-cooling"
node_fault = true
[states.REQUEUED]
kind = "hardware-candidate"
needs_evidence = true
[symptoms.liquid-cooling]
name = "Liquid cooling"
hardware = true
rank = 5
[[rules]]
check = "coolant *"
symptom = "liquid-cooling"
node_fault = true
[[reasons]]
pattern = "*leak*"
reason_class = "leak"
symptom = "liquid-cooling"
"""
CSV = """table,key,code,field,value
believe,,,,gpud
xid,94,,node_fault,no
xid,94,,sticky,yes
xid,500,,symptom,liquid-cooling
xid,500,,node_fault,yes
state,REQUEUED,,kind,hardware-candidate
state,REQUEUED,,needs_evidence,yes
symptom,liquid-cooling,,name,Liquid cooling
symptom,liquid-cooling,,hardware,yes
symptom,liquid-cooling,,rank,5
rule,coolant *,,symptom,liquid-cooling
rule,coolant *,,node_fault,yes
reason,*leak*,,reason_class,leak
reason,*leak*,,symptom,liquid-cooling
"""


@pytest.mark.parametrize(("name", "text"), [("site.toml", TOML), ("site.csv", CSV)])
def test_a_site_may_override_any_row(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    site = load_taxonomy(path)
    assert site.believe == "gpud"
    own = site.classify("xid", "94", "unknown")
    assert own is not None
    assert (own.is_node_fault, own.sticky) == (False, True)
    assert "the site's file" in own.why
    new = site.classify("xid", "500", "unknown")
    assert new is not None
    assert (new.symptom, new.is_node_fault) == ("liquid-cooling", True)
    leak = site.classify("coolant pump 3", None, "critical")
    assert leak is not None
    assert (leak.symptom, leak.is_node_fault, leak.rank) == ("liquid-cooling", True, 5)
    assert site.states["REQUEUED"].kind == "hardware-candidate"
    assert site.classify_reason("a LEAK under node 3").reason_class == "leak"
    assert site.domain("liquid-cooling") == "hardware"
    assert "xid 94" in site.changed
    assert TAXONOMY.states["REQUEUED"].kind == "operator"


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('believe = "gpud"')
    assert load_taxonomy(path, believe="aws").believe == "aws"


def test_all_problems_of_a_site_file_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(
        'believe = "acme"\n[xid.x]\nsticky = true\n[xid.79]\nsymptom = "nope"\nsticky = "maybe"\n'
        '[xid.48]\nsymptom = "nope"\n[states.GONE]\nkind = "none"\n[states.FAILED]\nkind = "bad"\n'
        '[[rules]]\nsymptom = "oom"\n[[reasons]]\npattern = "x"\n[weather]\nrain = 1\n'
        "[symptoms.oom]\ncolour = 3\n"
    )
    with pytest.raises(UsageError) as caught:
        load_taxonomy(path)
    text = str(caught.value)
    for words in (
        "not a valid taxonomy file:",
        "believe: 'acme' (expected one of nvidia",
        "xid.x: an XID is a number",
        "xid.79: sticky is 'maybe' (expected true or false)",
        "xid.48: symptom is 'nope' (expected one of oom",
        "states.GONE: no such end state of Slurm",
        "states.FAILED: kind is 'bad' (expected one of none",
        "rules 1: check missing",
        "reasons 1: reason_class missing",
        "weather: no such table",
        "symptoms.oom: no field 'colour'",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "believe = ", "not a TOML file"),
        ("a.csv", "x,y\n1,2\n", "the columns are 'x,y', expected 'table,key,code,field,value'"),
    ],
)
def test_an_unreadable_site_file(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        load_taxonomy(path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_taxonomy(tmp_path / "absent.toml")
