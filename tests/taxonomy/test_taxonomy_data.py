"""The taxonomy's data against the paper's Table I and the counts that the reference states."""

import pytest

from ettr.taxonomy import (
    VENDORS,
    Taxonomy,
    load_taxonomy,
    parse_node_state,
    parse_state,
    parse_xid_code,
)
from ettr.taxonomy.codes import KINDS

# name, user program, system software, hardware: Table I as the paper prints it
TABLE_I = (
    ("OOM", "user"),
    ("GPU unavailable", "system+hardware"),
    ("GPU memory errors", "hardware"),
    ("GPU driver/firmware error", "system"),
    ("GPU NVLink error", "hardware"),
    ("InfiniBand link", "hardware"),
    ("Filesystem mounts", "system"),
    ("Main memory errors", "hardware"),
    ("Ethlink errors", "hardware"),
    ("PCIe errors", "hardware"),
    ("NCCL timeout", "user+system+hardware"),
    ("System services", "user+system+hardware"),
)
DISAGREE = {
    32,
    38,
    44,
    54,
    60,
    63,
    68,
    69,
    78,
    94,
    109,
    121,
    136,
    *range(144, 152),
    155,
    156,
    158,
    159,
}
END_STATES = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
    "REVOKED",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "LAUNCH_FAILED",
    "RECONFIG_FAIL",
}


@pytest.fixture(scope="module")
def taxonomy() -> Taxonomy:
    return load_taxonomy()


def test_table_i_is_complete_and_in_order(taxonomy: Taxonomy) -> None:
    rows = tuple((s.name, s.domain) for s in taxonomy.symptoms.values() if s.in_table_i)
    assert rows == TABLE_I


def test_every_rule_reason_and_xid_names_a_symptom_that_exists(taxonomy: Taxonomy) -> None:
    named = {r.symptom for r in taxonomy.rules} | {r.symptom for r in taxonomy.reasons}
    named |= {x.symptom for x in taxonomy.xids.values()}
    assert named - {None, "@xid", "@reason"} <= set(taxonomy.symptoms)


def test_98_codes_have_an_action_and_vendors_disagree_on_25_and_87(taxonomy: Taxonomy) -> None:
    xids = taxonomy.xids
    assert sum(bool(x.nvidia) for x in xids.values()) == 98
    acted = [x for x in xids.values() if x.nvidia]
    assert {x.code for x in acted if x.conflict()} == DISAGREE
    assert sum(x.conflict(VENDORS) for x in acted) == 87


def test_sticky_codes_and_roles_are_those_of_the_reference(taxonomy: Taxonomy) -> None:
    assert {x.code for x in taxonomy.xids.values() if x.sticky} == {74, 79, 95, 109, 119}
    assert taxonomy.xids[154].role == "pointer"
    assert taxonomy.xids[45].role == "sympathetic"


def test_every_verdict_names_its_source(taxonomy: Taxonomy) -> None:
    verdicts = taxonomy.xids[79].verdicts
    assert list(verdicts) == list(VENDORS)
    assert all(v.node_fault and v.source and v.says for v in verdicts.values())


def test_every_end_state_is_in_the_truth_table(taxonomy: Taxonomy) -> None:
    terminal = {s.state for s in taxonomy.states.values() if s.terminal}
    assert terminal == END_STATES
    for state in taxonomy.states.values():
        assert state.kind in KINDS
        assert state.kind_by_owner in KINDS
        assert state.reason.endswith(".")
        assert state.terminal or state.kind == "none"


def test_a_cancel_a_timeout_and_a_preemption_are_no_failures_of_hardware(
    taxonomy: Taxonomy,
) -> None:
    kinds = {name: (row.kind, row.kind_by_owner) for name, row in taxonomy.states.items()}
    assert kinds["CANCELLED"] == ("operator", "none")
    assert kinds["TIMEOUT"] == ("time-limit", "time-limit")
    assert kinds["PREEMPTED"] == ("preemption", "preemption")
    for state in ("NODE_FAIL", "FAILED"):
        assert kinds[state] == ("hardware-candidate", "hardware-candidate")
    assert taxonomy.states["FAILED"].needs_evidence
    assert not taxonomy.states["NODE_FAIL"].needs_evidence


@pytest.mark.parametrize(
    ("text", "base", "uid"),
    [
        ("CANCELLED by 1000", "CANCELLED", "1000"),
        ("COMPLETED", "COMPLETED", None),
        ("oom", "OUT_OF_MEMORY", None),
        ("CANCELLED+", "CANCELLED", None),
        ("OUT_OF_ME+", "OUT_OF_MEMORY", None),
        ("RE+", "RE+", None),
        ("", "", None),
    ],
)
def test_job_states_as_printed(text: str, base: str, uid: str | None) -> None:
    assert parse_state(text) == (base, uid)


def test_short_codes() -> None:
    short = "BF CA CD DL F NF OOM PR TO RV RQ RH RF SE PD R S CG CF RS SI SO ST RD"
    states = (
        "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT "
        "REVOKED REQUEUED REQUEUE_HOLD REQUEUE_FED SPECIAL_EXIT PENDING RUNNING SUSPENDED "
        "COMPLETING CONFIGURING RESIZING SIGNALING STAGE_OUT STOPPED RESV_DEL_HOLD"
    )
    assert [parse_state(word).base for word in short.split()] == states.split()


@pytest.mark.parametrize(
    ("text", "base", "flags", "state", "unavailable"),
    [
        ("DOWN*", "DOWN", {"NOT_RESPONDING"}, "DOWN", True),
        ("IDLE+DRAIN", "IDLE", {"DRAIN"}, "DRAIN", True),
        ("drained", "IDLE", {"DRAIN"}, "DRAIN", True),
        ("drng", "MIXED", {"DRAIN"}, "DRAIN", False),
        ("ALLOCATED+DRAIN", "ALLOCATED", {"DRAIN"}, "DRAIN", False),
        ("mix-", "MIXED", {"PLANNED"}, "MIXED", False),
        ("idle~", "IDLE", {"POWERED_DOWN"}, "POWERED_DOWN", False),
        ("alloc+", "ALLOCATED", set(), "ALLOCATED", False),
        ("maint", "UNKNOWN", {"MAINTENANCE"}, "MAINT", True),
        ("unk", "UNKNOWN", set(), "UNKNOWN", None),
    ],
)
def test_node_states_as_printed(
    text: str, base: str, flags: set[str], state: str, unavailable: bool | None
) -> None:
    got = parse_node_state(text)
    assert (got.base, set(got.flags), got.state, got.unavailable) == (
        base,
        flags,
        state,
        unavailable,
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("79", (79, None, None)),
        ("XID_79", (79, None, None)),
        ("XID-48", (48, None, None)),
        ("149.NETIR_LINK_EVT.fatal", (149, "NETIR_LINK_EVT", "fatal")),
        ("149.NETIR_LINK_EVT", (149, "NETIR_LINK_EVT", None)),
        ("150.fatal", (150, None, "fatal")),
    ],
)
def test_xid_codes_in_every_spelling(text: str, code: tuple[int, str | None, str | None]) -> None:
    parsed = parse_xid_code(text)
    assert parsed is not None
    assert (parsed.xid, parsed.unit, parsed.severity) == code


@pytest.mark.parametrize("text", ["", "DCGM_FR_X", "xid", "7 9", "٣"])
def test_what_is_no_xid_code(text: str) -> None:
    assert parse_xid_code(text) is None


def test_a_job_whose_node_did_not_boot_says_so_itself(taxonomy: Taxonomy) -> None:
    said = {name: state.symptom for name, state in taxonomy.states.items() if state.symptom}
    assert said == {"BOOT_FAIL": "boot"}
    assert taxonomy.classify_reason("ResumeTimeout reached").symptom == "boot"
    assert set(said.values()) <= set(taxonomy.symptoms)
