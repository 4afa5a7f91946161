"""The training side of ettr: what runs inside the user's own training loop.

It shares a file format with the analysis (the lines of `progress`), never an import. Standard
library only: `progress`, `goodput`, `google_goodput`. With torch: the running checkpoint.

    progress.ProgressRecorder(path, run=..., clock=...)   .start .step .save .restore .stall ...
    goodput.Goodput(), goodput.goodput_of_file(path)      exact split of the wall clock
    running.RunningCheckpoint(root, state, slot=...)      .step .save_all .wait .close
    restoring.restore(root, state, slot=...)              -> RestoreReport
    verifying.verify(root)                                -> list[BadBlock]
    dcp.CheckedWriter(path), dcp.CheckedReader(path)      storage for dcp.save and dcp.load
    exporting.export_safetensors, exporting.export_dcp    one consistent checkpoint, or a composite

Import the modules themselves; this package imports none of them, so that the recorder starts
without torch.
"""
