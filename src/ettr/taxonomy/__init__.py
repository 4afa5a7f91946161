"""Why things fail: symptoms, XID codes, Slurm's states, checks and reasons, all as data."""

from ettr.taxonomy.catalogue import Taxonomy, Verdict, load_taxonomy, xid_of_reason
from ettr.taxonomy.rules import UNATTRIBUTED, ReasonRule, ReasonVerdict, Rule, Symptom
from ettr.taxonomy.slurm import JobState, NodeState, ParsedState, parse_node_state, parse_state
from ettr.taxonomy.xid import (
    CONFLICT_VENDORS,
    VENDORS,
    VendorVerdict,
    Xid,
    XidCode,
    conflicts,
    parse_xid_code,
)

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
    "conflicts",
    "load_taxonomy",
    "parse_node_state",
    "parse_state",
    "parse_xid_code",
    "xid_of_reason",
]
