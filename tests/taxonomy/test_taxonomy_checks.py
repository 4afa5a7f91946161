"""Every check and code that the ecosystem's projects name has a rule."""

import pytest

from ettr.taxonomy import load_taxonomy

TAXONOMY = load_taxonomy()
GCM = """ssh certs, cuda memtest, zombie, dstate, link flaps, io errors, mce errors,
pcie aer errors, processor frequency, frequency governor, check memory size, check buddyinfo,
ipmitool sel,
hca count,
disk usage, disk size, mounted directory, file/directory exists check, running process, check ssh,
slurm state, slurmctld count, slurm cluster availability, service status, package version,
airstore credential count, nccl-tests, nvidia smi gpu_num, nvidia smi clock_freq,
nvidia smi running_procs, nvidia smi running_procs_and_kill, nvidia smi gpu_temp,
nvidia smi mem_usage, nvidia smi retired_pages, nvidia smi ecc_uncorrected,
nvidia smi ecc_corrected, nvidia smi row_remap, nvidia smi row_remap_pending,
nvidia smi row_remap_failed, nvidia smi bios version mismatch, check dcgmi diag,
check dcgmi nvlink error, check dcgmi nvlink status, check ibstat, check ib interfaces,
check iblink, check password status, check path access, check uptime, check module,
check dnf repos, check mountpoint, check pci, check blockdev, check ethlink, check clocksource,
check sensors, xid errors"""
NVSENTINEL = """GpuMemWatch GpuThermalWatch GpuPcieWatch GpuPowerWatch GpuInforomWatch GpuSmWatch
GpuNvlinkWatch GpuMcuWatch GpuPmuWatch GpuDriverWatch GpuCpusetWatch SysLogsSXIDError
SysLogsGPUFallenOff NVSwitchFatalError NVSwitchDown NVSwitchNonFatalError DCGMError CSPMaintenance
SyslogError"""
AZNHC = (2001, 2002, 2003, 2004, 2005, *range(2007, 2024))
# the paper's high-severity checks, as GCM names them, and the symptom of each
HIGH = {
    "nvidia smi gpu_num": "gpu-unavailable",
    "check dcgmi nvlink error": "nvlink",
    "nvidia smi ecc_uncorrected": "gpu-memory",
    "nvidia smi row_remap_failed": "gpu-memory",
    "check pci": "pcie",
    "check iblink": "infiniband",
    "check blockdev": "filesystem",
    "check mountpoint": "filesystem",
}


def names(text: str, separator: str | None) -> list[str]:
    return [" ".join(name.split()) for name in text.split(separator)]


@pytest.mark.parametrize("check", [*names(GCM, ","), *names(NVSENTINEL, None)])
def test_every_named_check_is_known(check: str) -> None:
    assert TAXONOMY.knows(check, None)


@pytest.mark.parametrize("number", AZNHC)
def test_every_fault_code_of_azure_is_a_node_fault(number: int) -> None:
    verdict = TAXONOMY.classify("nhc", f"NHC{number}", "critical")
    assert verdict is not None
    assert verdict.is_node_fault


@pytest.mark.parametrize(("check", "symptom"), HIGH.items())
def test_high_severity_checks_take_the_node_out(check: str, symptom: str) -> None:
    verdict = TAXONOMY.classify(check, None, "critical")
    assert verdict is not None
    assert (verdict.symptom, verdict.is_node_fault) == (symptom, True)


@pytest.mark.parametrize(
    ("code", "symptom", "fault"),
    [
        ("DCGM_FR_FALLEN_OFF_BUS", "gpu-unavailable", True),
        ("DCGM_FR_NVLINK_DOWN", "nvlink", True),
        ("DCGM_FR_VOLATILE_DBE_DETECTED", "gpu-memory", True),
        ("DCGM_FR_PENDING_ROW_REMAP", "gpu-memory", True),
        ("DCGM_FR_NCCL_ERROR", "nccl-timeout", False),
    ],
)
def test_codes_of_dcgm_say_more_than_the_check(code: str, symptom: str, fault: bool) -> None:
    verdict = TAXONOMY.classify("DCGMError", code, "critical")
    assert verdict is not None
    assert (verdict.symptom, verdict.is_node_fault) == (symptom, fault)
