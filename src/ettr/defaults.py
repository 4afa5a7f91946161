"""The defaults that commands, results and docs share, each stated here and nowhere else."""

CONFIDENCE = 0.9
# seconds before and after a job's end in which an event explains it (Kokolis et al. 2025: 10 and
# 5 minutes)
WINDOW_BEFORE_S = 600.0
WINDOW_AFTER_S = 300.0
# large jobs, from which the rate that is projected is taken, have more GPUs than this
LARGE_JOB_GPUS = 128
GPUS_PER_NODE = 8
