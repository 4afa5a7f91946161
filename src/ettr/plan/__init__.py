"""Forms of ETTR, checkpoint schemes, and the outlook of a run: what failures will cost.

Standard library only, so that a trainer may import it.
"""
