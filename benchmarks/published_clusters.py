"""What is published of Acme's clusters (Seren, Kalos) and of Philly, each figure with its address.

Facts of the original publications and of public repositories that computed them from the released
traces, read in November 2026. None of it was recomputed here: the traces were not at hand.
"""

from typing import NamedTuple

from simulated_figures import RealWait

SUMMARY = "InternLM/AcmeTrace, data/cluster_summary.csv"
WASTE = "CoolingCube/acmetrace-gpu-waste, README.md"
QUEUE = "xabarov/most-queue, works/modern_gpu_trace"
BLOX = '"ACME-on-Blox: findings so far", a fork of msr-fiddle/blox'
NSDI = "Hu et al., NSDI 2024"
ATC = "Jeon et al., USENIX ATC 2019"
RLC = '"Learning to Schedule Deep Learning Jobs on a GPU Cluster", README.md'
GRID = '"AI Data Centre Optimiser", README.md'
DERIVED = "; derived"


class Fact(NamedTuple):
    """One published figure.

    Attributes:
        what: Name of the quantity, as `simulate_published.py` measures it.
        value: In the unit of its name.
        where: It is published.
        fitted: Whether the scenario was chosen to meet it.
        bound: "<" or ">" where the publication gives a bound.
    """

    what: str
    value: float
    where: str
    fitted: bool = False
    bound: str = ""


def _fitted(what: str, value: float, where: str) -> Fact:
    return Fact(what, value, where, fitted=True)


KALOS = (
    _fitted("held_percent", 27.3, f"{QUEUE}: 1,442,405 GPU-h of 2,416 GPUs in 91.2 days{DERIVED}"),
    _fitted("jobs_per_day", 218.3, f"{SUMMARY}: 19,907 GPU jobs; {QUEUE}: 91.2 days{DERIVED}"),
    _fitted("same_second_percent", 31.0, BLOX),
    _fitted("of_1_gpu_percent", 86.3, BLOX),
    Fact("over_8_gpus_percent", 7.0, NSDI, fitted=True, bound="<"),
    _fitted("mean_gpus", 26.77, SUMMARY),
    Fact("gpu_time_of_1_gpu_percent", 2.0, NSDI, fitted=True, bound="<"),
    _fitted("gpu_time_from_256_gpus_percent", 96.3, BLOX),
    _fitted("completed_percent", 54.1, SUMMARY),
    _fitted("failed_percent", 39.7, SUMMARY),
    _fitted("cancelled_percent", 6.2, SUMMARY),
    _fitted("preempted_percent", 0.0, WASTE),
    _fitted("gpu_time_completed_percent", 31.9, QUEUE),
    _fitted("gpu_time_failed_percent", 6.35, QUEUE),
    _fitted("gpu_time_cancelled_percent", 61.8, QUEUE),
    _fitted("failed_of_1_gpu_percent", 42.3, WASTE),
    _fitted("failed_over_512_gpus_percent", 9.5, WASTE),
    _fitted("run_mean_s", 1045.5, f"{SUMMARY}: duration less wait{DERIVED}"),
    Fact("wait_and_run_50_s", 124.0, f"{SUMMARY}: its durations are wait and run ({QUEUE})"),
    Fact("wait_and_run_under_5_min_percent", 73.0, WASTE),
    Fact("over_31_6_min_percent", 7.8, BLOX),
    Fact("wait_50_s", 17.0, SUMMARY),
    Fact("wait_mean_s", 214.2, SUMMARY),
    _fitted("wait_of_1_gpu_mean_s", 185.0, WASTE),
    Fact("wait_of_1_gpu_over_1_h_percent", 0.8, WASTE),
    Fact("wait_of_2_to_512_gpus_mean_s", 400.0, f"{SUMMARY}; {WASTE}{DERIVED}"),
    Fact("wait_over_512_gpus_mean_s", 64.0, WASTE),
    Fact("wait_over_512_gpus_over_1_h_percent", 0.5, WASTE),
)


SEREN = (
    _fitted("held_percent", 59.1, f"{WASTE}: 5,626,520 GPU-h; 2,288 GPUs, 173.5 days{DERIVED}"),
    _fitted("jobs_per_day", 2597.0, f"{BLOX}: 450,590 GPU jobs in 173.5 days{DERIVED}"),
    _fitted("same_second_percent", 32.1, BLOX),
    _fitted("of_1_gpu_percent", 54.0, BLOX),
    Fact("over_8_gpus_percent", 7.0, NSDI, fitted=True, bound="<"),
    Fact("mean_gpus", 5.68, SUMMARY),
    Fact("gpu_time_of_1_gpu_percent", 2.0, NSDI, fitted=True, bound="<"),
    _fitted("gpu_time_from_256_gpus_percent", 56.4, BLOX),
    _fitted("completed_percent", 51.1, f"{WASTE}: 46.1 of 90.2{DERIVED}"),
    _fitted("failed_percent", 37.6, f"{WASTE}: 33.9 of 90.2{DERIVED}"),
    _fitted("cancelled_percent", 11.3, f"{WASTE}: 10.2 of 90.2{DERIVED}"),
    Fact("preempted_percent", 9.7, WASTE),
    Fact("gpu_time_completed_percent", 21.2, f"{SUMMARY} (663,813 jobs)"),
    _fitted("gpu_time_failed_percent", 4.2, WASTE),
    Fact("gpu_time_cancelled_percent", 66.4, f"{SUMMARY} (663,813 jobs)"),
    Fact("failed_of_1_gpu_percent", 34.3, WASTE),
    Fact("failed_over_512_gpus_percent", 4.7, WASTE),
    Fact("run_mean_s", 1414.0, f"{SUMMARY} (663,813 jobs)"),
    _fitted("run_50_s", 135.0, BLOX),
    _fitted("run_99_s", 25200.0, BLOX),
    _fitted("run_under_5_min_percent", 69.0, WASTE),
    Fact("over_31_6_min_percent", 7.4, BLOX),
    Fact("wait_50_s", 1.0, SUMMARY),
    Fact("wait_mean_s", 446.0, f"{SUMMARY} (663,813 jobs)"),
    Fact("wait_of_1_gpu_mean_s", 924.0, WASTE),
    Fact("wait_of_1_gpu_over_1_h_percent", 1.1, WASTE),
    Fact("wait_over_512_gpus_mean_s", 31.0, WASTE),
    Fact("wait_over_512_gpus_over_1_h_percent", 0.0, WASTE),
)


_PHILLY_LOAD = f"{SUMMARY}: 1,915,199 GPU-h; 2,490 GPUs, 136.9 days{DERIVED}"
PHILLY = (
    _fitted("held_percent", 23.4, _PHILLY_LOAD),
    _fitted("jobs_per_day", 857.0, "msr-fiddle/philly-traces, README.md: 117,325 in 136.9 days"),
    _fitted("of_1_gpu_percent", 86.6, RLC),
    Fact("over_8_gpus_percent", 7.0, NSDI, fitted=True, bound="<"),
    _fitted("mean_gpus", 1.93, SUMMARY),
    _fitted("completed_percent", 74.0, RLC),
    _fitted("failed_percent", 16.0, RLC),
    _fitted("cancelled_percent", 10.0, RLC),
    _fitted("gpu_time_completed_percent", 44.5, f"{ATC}, table 6 (96,260 jobs)"),
    _fitted("gpu_time_failed_percent", 17.8, f"{ATC}, table 6 (96,260 jobs)"),
    _fitted("gpu_time_cancelled_percent", 37.7, f"{ATC}, table 6 (96,260 jobs)"),
    Fact("run_mean_s", 18006.0, f"{SUMMARY} (112,956 rows)"),
    _fitted("run_25_s", 114.0, RLC),
    _fitted("run_50_s", 1200.0, RLC),
    _fitted("run_90_s", 31320.0, RLC),
    _fitted("run_99_s", 656640.0, RLC),
    Fact("over_a_day_percent", 3.5, f"{GRID} (83,152 jobs)"),
    Fact("gpu_time_over_a_day_percent", 90.9, f"{GRID} (83,152 jobs)"),
    Fact("wait_50_s", 189.0, f"{SUMMARY} (112,956 rows)"),
    Fact("wait_mean_s", 3760.6, f"{SUMMARY} (112,956 rows)"),
)
PUBLISHED = {"seren-like": SEREN, "kalos-like": KALOS, "philly-like": PHILLY}
DAYS = {"seren-like": 90.0, "kalos-like": 91.2, "philly-like": 136.9}
REAL_WAITS = (
    RealWait("seren-like", "Seren", 1, 924.0, 1.1, WASTE),
    RealWait("seren-like", "Seren", 1024, 31.0, 0.0, f"{WASTE}, over 512 GPUs"),
    RealWait("kalos-like", "Kalos", 1, 185.0, 0.8, WASTE),
    RealWait("kalos-like", "Kalos", 1024, 64.0, 0.5, f"{WASTE}, over 512 GPUs"),
)
"""Of Philly none is published as a number: the paper draws its waits."""
