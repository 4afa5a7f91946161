"""What failures will cost: closed and exact forms of ETTR, and checkpoint schemes.

Standard library only, so that a trainer may import it.
"""
