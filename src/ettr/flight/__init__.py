"""Flight records of PyTorch: which collective hangs, and which rank the others wait for."""

from ettr.flight.folder import FlightFolder, Refusal, read_folder
from ettr.flight.judge import judge
from ettr.flight.verdict import Culprit, FlightVerdict, StuckCollective, VerdictKind

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
