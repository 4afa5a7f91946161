"""The defaults that commands, results and docs share, each stated here and nowhere else."""

CONFIDENCE = 0.9
# seconds before and after a job's end in which an event explains it (Kokolis et al. 2025: 10 and
# 5 minutes)
WINDOW_BEFORE_S = 600.0
WINDOW_AFTER_S = 300.0
# large jobs, from which the rate that is projected is taken, have more GPUs than this
LARGE_JOB_GPUS = 128
GPUS_PER_NODE = 8
# of a run where nobody says otherwise (Kokolis et al. 2025 assume 5 minutes of each)
WRITE_S = 300.0
RESTART_S = 300.0
# of the machines and the storage that checkpoint schemes are ranked for
NETWORK_BYTES_PER_S = 50e9
DEVICE_BYTES_PER_S = 100e9
HOST_BYTES = 500e9
REPLACE_S = 60.0
DURABLE_PERIOD_S = 3600.0
