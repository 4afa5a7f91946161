"""Bounds on what is read: a folder of flight records may hold anything."""

# a record of 20,000 entries is 9 MB of JSON and 2 MB of pickle; a byte of a hostile pickle can
# become a list of 80 bytes
LARGEST_JSON_BYTES = 32 << 20
LARGEST_PICKLE_BYTES = 16 << 20
MOST_RECORDS = 100_000
MOST_ENTRIES = 200_000
MOST_RANKS = 200_000
# over all records
MOST_CALLS = 3_000_000
LONGEST_NAME = 200
MOST_SIZES = 4096
LARGEST_INT = 1 << 63
