"""Flight records of PyTorch: which collective hangs, and which rank the others wait for."""

from ettr.flight.folder import FlightFolder, Refusal, read_folder
from ettr.flight.judge import Culprit, FlightVerdict, StuckCollective, VerdictKind, judge

__all__ = [
    "Culprit",
    "FlightFolder",
    "FlightVerdict",
    "Refusal",
    "StuckCollective",
    "VerdictKind",
    "judge",
    "read_folder",
]
