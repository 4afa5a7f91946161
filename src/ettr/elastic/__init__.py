"""Lose a rank, keep the rest: survivors keep process, parameters and moments, and regroup.

    worker.ElasticGroup.from_env(...)    in the training script; .run(train) calls train(generation)
    protection.Protection(...)           buddy, running and full checkpoints
    supervisor.supervise(command, world) the parent of the ranks: `ettr elastic -n 4 -- CMD`
    gasp                                 the same under stock torchrun, through shared memory
    reconfigure                          regroup="reconfigure": torch changes the group's members
    backends.backends()                  which ways of regrouping this installation has

Import the modules themselves; this package imports none of them.
"""
