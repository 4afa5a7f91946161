"""The errors of checkpoints. Each says what was found, what is allowed and what to do next."""

from ettr.errors import EttrError


class CheckpointError(EttrError):
    """A checkpoint cannot be written, read, or trusted."""


class FencedError(CheckpointError):
    """Another process of a later generation owns the slot; this one may not write into it."""
