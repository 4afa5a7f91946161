"""The defaults that commands, results and docs share, each stated here and nowhere else."""

CONFIDENCE = 0.9
# seconds before and after a job's end in which an event explains it (Kokolis et al. 2025: 10 and
# 5 minutes)
WINDOW_BEFORE_S = 600.0
WINDOW_AFTER_S = 300.0
# silence after which an error begins a new episode, and the same for errors that repeat until
# somebody acts
BURST_GAP_S = 180.0
STICKY_GAP_S = 10_800.0
# between the end of a job and a line of the controller's log, or a node's state, about it
LOG_TOLERANCE_S = 300.0
# `ettr explain` reads events from so long before the job's first end
LOOK_BACK_S = 604_800.0
# from a preemption to the restart that it made room for, and to the controller's line about it
PREEMPTION_WINDOW_S = 300.0
PREEMPTION_TOLERANCE_S = 120.0
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
# largest expected share of ordinary nodes among those that are claimed to be lemons
FALSE_DISCOVERY = 0.1
# how long a node that is claimed to be a lemon is out of service
DRAIN_DAYS = 7.0
# after its start up to which the end of a job may count as early
EARLY_S = (30, 120, 600)
# interruptions whose causes are listed one by one unless more are asked for: some 60 MB of JSON
MOST_CAUSES_LISTED = 100_000
# attempts and nodes that a timeline draws unless others are asked for
TIMELINE_JOBS = 5000
TIMELINE_NODES = 2000
