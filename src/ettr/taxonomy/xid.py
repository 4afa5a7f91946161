"""The XID codes of NVIDIA's driver, with what each of five parties makes of them.

For the question "is this a fault of the node?" each party's own words become yes, no or unknown:

- NVIDIA: yes where the immediate action resets the GPU, restarts the machine, checks mechanics, or
  is the workflow of XID 48 or of NVLink; unknown where its catalogue gives no action.
- gpud: yes where its event type is Fatal; unknown where it has no type.
- AWS: yes unless its severity is MONITOR; unknown where it lists none.
- GCM: yes unless the code is in its set of warnings; a code that it does not know is critical.
- AzNHC: yes where its check fails the node for the code, else no.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from ettr.taxonomy.rules import read_records, truth

VENDORS = ("nvidia", "gpud", "gcm", "aws", "aznhc")
CONFLICT_VENDORS = ("nvidia", "gpud", "aws")

_SOURCES = {
    "nvidia": "NVIDIA XID catalogue, immediate action",
    "gpud": "gpud's XID table, event type and repair action",
    "gcm": "GCM's check of XID errors, causes and set of warnings",
    "aws": "AWS's list of XID codes, severity",
    "aznhc": "Azure node health checks, list of codes that fail a node",
}
_NVIDIA_FAULT = frozenset(
    {
        "RESET_GPU",
        "RESTART_BM",
        "RESTART_VM",
        "CHECK_MECHANICALS",
        "WORKFLOW_XID_48",
        "WORKFLOW_NVLINK_ERR",
        "WORKFLOW_NVLINK5_ERR",
    }
)
_CODE = re.compile(r"(?:s?xid[ _:-]*)?(\d{1,6})(?:\.([\w/-]+?))?(?:\.(fatal|nonfatal|link-fatal))?")


class Role(StrEnum):
    """The role of a code among others: a cause, or only something about another code."""

    CAUSE = "cause"
    SYMPATHETIC = "sympathetic"
    POINTER = "pointer"
    INFORMATIONAL = "informational"


@dataclass(frozen=True, slots=True)
class VendorVerdict:
    """What one party says about a code, and what that means for the node (None: not known)."""

    vendor: str
    node_fault: bool | None
    says: str
    source: str


@dataclass(frozen=True, slots=True)
class XidCode:
    """An XID as an event carries it: number, NVLink5 unit, and severity in that line."""

    xid: int
    unit: str | None = None
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID with the verdict of each party.

    `products` says for A100, H100, B100 and GB200 in turn whether the code applies (Y or n);
    `sticky` codes stay until somebody acts, so their repeats over hours are one episode.
    `node_fault` is the site's own verdict; None leaves it to the party that is believed.
    """

    code: int
    mnemonic: str
    description: str
    symptom: str | None
    symptom_by: str
    role: Role
    sticky: bool
    nvidia: str
    nvidia_follow_up: str
    products: str
    announced_by_154: bool
    gpud: str
    gcm: str
    aws: str
    aznhc: bool
    node_fault: bool | None = None

    @property
    def verdicts(self) -> dict[str, VendorVerdict]:
        """Each party's verdict by its name, in the order of VENDORS."""
        faults: dict[str, bool | None] = {
            "nvidia": self.nvidia in _NVIDIA_FAULT if self.nvidia else None,
            "gpud": self.gpud.startswith("Fatal") if self.gpud else None,
            "gcm": "(WARN)" not in self.gcm,
            "aws": not self.aws.startswith("MONITOR") if self.aws else None,
            "aznhc": self.aznhc,
        }
        says = {
            "nvidia": self.nvidia,
            "gpud": self.gpud,
            "gcm": self.gcm,
            "aws": self.aws,
            "aznhc": "fails the node" if self.aznhc else "",
        }
        return {v: VendorVerdict(v, faults[v], says[v], _SOURCES[v]) for v in VENDORS}

    def conflict(self, vendors: tuple[str, ...] = CONFLICT_VENDORS) -> bool:
        """Whether the named parties differ on "a fault of the node?"; unknown is no answer."""
        verdicts = self.verdicts
        answers = {verdicts[v].node_fault for v in vendors} - {None}
        return len(answers) > 1

    def believed(self, vendor: str) -> VendorVerdict:
        """The verdict of the believed party or, where it is silent, of the first that is not.

        The order after the believed party is that of VENDORS without GCM and AzNHC, whose silence
        is a default of their programs and no verdict.
        """
        verdicts = self.verdicts
        for name in (vendor, *CONFLICT_VENDORS):
            if verdicts[name].node_fault is not None:
                return verdicts[name]
        return verdicts[vendor]


def read_xids() -> dict[int, Xid]:
    """The whole catalogue by code."""
    return {
        int(row["xid"]): Xid(
            code=int(row["xid"]),
            mnemonic=row["mnemonic"],
            description=row["description"],
            symptom=row["symptom"] or None,
            symptom_by=row["symptom_by"],
            role=Role(row["role"] or "cause"),
            sticky=truth(row["sticky"]),
            nvidia=row["nvidia"],
            nvidia_follow_up=row["nvidia_follow_up"],
            products=row["products"],
            announced_by_154=truth(row["announced_by_154"]),
            gpud=row["gpud"],
            gcm=row["gcm"],
            aws=row["aws"],
            aznhc=truth(row["aznhc"]),
        )
        for row in read_records("xid")
    }


def read_subcodes() -> dict[tuple[int, str], str]:
    """What each unit of the NVLink5 codes 144 to 150 is, by (code, unit)."""
    return {(int(r["xid"]), r["unit"]): r["meaning"] for r in read_records("xid_subcodes")}


def parse_xid_code(text: str) -> XidCode | None:
    """An XID code in any of the spellings in use, or None.

    Args:
        text: `79`, `XID_79`, `XID-48`, `149.NETIR_LINK_EVT.fatal`, `149.NETIR_LINK_EVT`.
    """
    found = _CODE.fullmatch(text.strip().lower())
    if found is None or not found[1].isascii():
        return None
    unit = found[2]
    if unit in {"fatal", "nonfatal", "link-fatal"} and found[3] is None:
        return XidCode(int(found[1]), None, unit)
    return XidCode(int(found[1]), unit.upper() if unit else None, found[3])


def conflicts(xids: dict[int, Xid], vendors: tuple[str, ...] = CONFLICT_VENDORS) -> list[Xid]:
    """The codes with an immediate action of NVIDIA on which the named parties disagree."""
    return [xid for xid in xids.values() if xid.nvidia and xid.conflict(vendors)]
