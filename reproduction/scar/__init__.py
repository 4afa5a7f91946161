"""The experiments of the SCAR paper, run again: `python -m reproduction.scar`.

What a failure costs in iterations when only the lost parameters are restored, from a running
checkpoint that saves what moved most, against rolling everything back. The paper's body was not at
hand, so data sizes, learning rates, ranks, thresholds and checkpoint intervals are this package's;
docs/results/README.md says which and shows the results.
"""
