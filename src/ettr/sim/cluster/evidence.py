"""What a fault of each symptom leaves in the logs of a node: kernel line, check, drain reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trace:
    """What the logs show of one symptom.

    Attributes:
        check: Health check that finds it.
        code: Of that check; None for a check without codes.
        reason: Of the node's state once the check has taken it out.
        of_one_gpu: It hits one GPU and the job that holds it; else the whole node.
        xid: Code of the kernel's line; None where the kernel writes none.
        message: Of that line.
    """

    check: str
    code: str | None
    reason: str
    of_one_gpu: bool = False
    xid: str | None = None
    message: str = ""


EVIDENCE: dict[str, Trace] = {
    "gpu-unavailable": Trace(
        "nvidia smi gpu_num",
        None,
        "NHC: check_nv_healthmon: GPU lost",
        of_one_gpu=True,
        xid="79",
        message="GPU has fallen off the bus.",
    ),
    "gpu-memory": Trace(
        "nvidia smi ecc_uncorrected_volatile_total",
        None,
        "NHC: GPU has uncorrectable ECC errors",
        of_one_gpu=True,
        xid="48",
        message="Double Bit ECC Error",
    ),
    "nvlink": Trace(
        "check dcgmi nvlink_error",
        None,
        "NHC: NVLink error",
        of_one_gpu=True,
        xid="74",
        message="NVLink: fatal error detected",
    ),
    "gpu-driver": Trace(
        "xid errors",
        "119",
        "NHC: Xid 119",
        of_one_gpu=True,
        xid="119",
        message="Timeout waiting for RPC from GSP",
    ),
    "pcie": Trace("pcie aer errors", None, "NHC: PCIe AER errors"),
    "infiniband": Trace("check ibstat", None, "NHC: check_hw_ib: no active port"),
    "ethlink": Trace("check ethlink", None, "NHC: check_hw_eth: no link"),
    "filesystem": Trace("check mountpoint", None, "NHC: check_fs_mount: /data not mounted"),
    "main-memory": Trace("mce errors", None, "NHC: check_hw_mcelog: machine check reported"),
    "node-hardware": Trace("ipmitool sel", None, "NHC: check_hw_ipmi: power supply"),
    "system-services": Trace("service status", None, "NHC: check_ps_service: sssd not running"),
}
