"""Conversions between the units that names in this package carry.

Every numeric name ends in its unit (`save_s`, `mttf_h`, `budget_bytes`); these constants are the
only place where one unit becomes another.
"""

SECONDS_PER_MINUTE = 60.0
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0
HOURS_PER_DAY = 24.0
DAYS_PER_YEAR = 365.25
MICROSECONDS_PER_SECOND = 1_000_000
