"""What a failure looks like, and in which domains its cause may lie.

The twelve symptoms of Table I are data. Four more name what its rows have no place for: other parts
of a node, the facility, planned work, and the user's own program.

Source:
    Kokolis et al. (HPCA 2025), Table I.
"""

from dataclasses import dataclass

from ettr.taxonomy.records import read_records, truth

TABLE_I = "Table I"
UNATTRIBUTED = "unattributed"
UNKNOWN_DOMAIN = "unknown"


@dataclass(frozen=True, slots=True)
class Symptom:
    """One symptom: the domains that may hold its cause, and what the cause usually is.

    `rank` orders symptoms by how strong a sign each is that the node must go; 1 is the strongest.
    """

    slug: str
    name: str
    user_program: bool
    system_software: bool
    hardware: bool
    rank: int
    likely_cause: str
    source: str

    @property
    def domain(self) -> str:
        """The domains in one string, such as `hardware` or `system+hardware`."""
        domains = (
            ("user", self.user_program),
            ("system", self.system_software),
            ("hardware", self.hardware),
        )
        return "+".join(name for name, there in domains if there) or UNKNOWN_DOMAIN

    @property
    def in_table_i(self) -> bool:
        """Whether the symptom is a row of the paper's Table I."""
        return self.source == TABLE_I


def read_symptoms() -> dict[str, Symptom]:
    """Every symptom by slug: Table I in its own order, then the others."""
    return {
        row["slug"]: Symptom(
            slug=row["slug"],
            name=row["name"],
            user_program=truth(row["user_program"]),
            system_software=truth(row["system_software"]),
            hardware=truth(row["hardware"]),
            rank=int(row["rank"]),
            likely_cause=row["likely_cause"],
            source=row["source"],
        )
        for row in read_records("symptoms")
    }
