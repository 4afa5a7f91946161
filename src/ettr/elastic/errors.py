"""Errors that end a rank's training."""

from __future__ import annotations

from ettr.errors import EttrError


class RankFailedError(EttrError):
    """Training failed on this rank for a reason other than the loss of a peer."""


class EvictedError(EttrError):
    """This process was replaced: another one holds its slot now."""
