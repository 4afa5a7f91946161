"""Why things fail: symptoms, XID codes, Slurm's states, checks and reasons, all as data."""

from ettr.taxonomy.catalogue import Taxonomy, Verdict, load_taxonomy, xid_of_reason
from ettr.taxonomy.codes import (
    CONFLICT_VENDORS,
    VENDORS,
    JobState,
    NodeState,
    ParsedState,
    VendorVerdict,
    Xid,
    XidCode,
    parse_node_state,
    parse_state,
    parse_xid_code,
)
from ettr.taxonomy.rules import UNATTRIBUTED, ReasonRule, ReasonVerdict, Rule, Symptom

__all__ = [
    "CONFLICT_VENDORS",
    "UNATTRIBUTED",
    "VENDORS",
    "JobState",
    "NodeState",
    "ParsedState",
    "ReasonRule",
    "ReasonVerdict",
    "Rule",
    "Symptom",
    "Taxonomy",
    "VendorVerdict",
    "Verdict",
    "Xid",
    "XidCode",
    "load_taxonomy",
    "parse_node_state",
    "parse_state",
    "parse_xid_code",
    "xid_of_reason",
]
