"""The kinds of clusters with planted causes that the campaign `causes` draws."""

from __future__ import annotations

from dataclasses import dataclass

MIXED, LARGE = (1, 1, 1, 1, 2, 4, 8, 16, 32), (8, 16, 32, 32, 64)


@dataclass(frozen=True, slots=True)
class Family:
    """Laws of one kind of cluster.

    Attributes:
        name: In the table.
        standing: "chosen by": the model, its constants or its widths were; "held out": written down
            after all of them stood.
        nodes: How many.
        users: How many, each with three programs.
        attempts: In 60 days.
        sizes: Nodes of an attempt, drawn evenly.
        crash: Beta law of the programs' chances to crash; None is one in twenty that crashes nearly
            always and others that hardly do.
        node_law: Of the nodes' rates: weibull, lognormal or equal.
        node_rate: Scale of those, per day.
        lemons: Nodes with .2 a day.
        outages: Of switches, or of the whole cluster where `wide`.
        wide: Whether outages are of the whole cluster.
        switch: Nodes of a switch.
        hit: Share of the jobs there that an outage ends.
        outage_days: How long an outage takes to end the jobs that it ends.
        software: days (four bad ones), rollout (ten days, less bad), steady, restarts (five, of
            daemons that end some jobs everywhere within ten minutes) or none.
        arrays: Of 30 jobs of one program that crash within a minute.
        length: Mean of the logarithm of an attempt's days.
        symptom: How often a fault leaves its symptom.
        chance: How often a node shows an unrelated one as an attempt ends, per node where
            `per_node`, else per attempt of any size.
        per_node: See `chance`.
        named: How often a fault of one node is named, and half as often one of what nodes share.
    """

    name: str
    standing: str = "chosen by"
    nodes: int = 256
    users: int = 40
    attempts: int = 20_000
    sizes: tuple[int, ...] = MIXED
    crash: tuple[float, float] | None = (0.3, 1.5)
    node_law: str = "weibull"
    node_rate: float = 0.004
    lemons: int = 3
    outages: int = 6
    wide: bool = False
    switch: int = 16
    hit: float = 0.7
    outage_days: float = 0.003
    software: str = "days"
    arrays: int = 0
    length: float = -1.6
    symptom: float = 0.8
    chance: float = 0.02
    per_node: bool = False
    named: float = 0.5


FAMILIES = (
    Family("mixed jobs"),
    Family("large jobs", sizes=LARGE, attempts=6_000, per_node=True, chance=0.002),
    Family("few symptoms", symptom=0.4, crash=(0.6, 6.0)),
    Family("one crashing program in twenty", crash=None, per_node=True, chance=0.004),
    Family("equal nodes, steady software", node_law="equal", lemons=0, software="steady"),
    Family("faults of nodes of all rates", node_law="lognormal", node_rate=0.01, crash=(0.2, 4.0)),
    Family("outages of the cluster, slow", wide=True, outage_days=0.02, named=0.2),
    Family("small cluster", nodes=48, users=8, attempts=2_500),
    Family("symptoms by chance", chance=0.01, per_node=True, symptom=0.6, software="rollout"),
    Family("no logs of nodes", symptom=0.0, chance=0.0),
    Family("arrays of a user that crash at once", arrays=6, crash=(0.4, 2.5)),
    Family("daemons that end many jobs at once", software="restarts", hit=0.5, outages=8),
    Family(
        "brief outages of large switches",
        nodes=320,
        users=60,
        switch=32,
        outages=8,
        outage_days=0.0004,
        hit=1.0,
    ),
    Family(
        "partial outages of half an hour",
        hit=0.3,
        outage_days=0.03,
        outages=12,
        symptom=0.7,
    ),
    Family("many arrays that crash at once", arrays=15),
    Family("96 nodes", nodes=96, users=12, attempts=4_000),
    Family("programs that mostly crash", crash=(1.5, 2.5), symptom=0.5, chance=0.03),
    Family("no outages, good software", outages=0, software="none", lemons=6),
    Family("daemons that end some jobs at once", software="restarts"),
    Family(
        "large jobs without logs of nodes",
        sizes=LARGE,
        attempts=5_000,
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "long jobs, few faults",
        users=25,
        attempts=5_000,
        length=-0.3,
        node_rate=0.001,
    ),
    Family("small jobs without logs", sizes=(1, 1, 1, 2), lemons=5, symptom=0.0, chance=0.0),
    Family("steady software without logs", software="steady", symptom=0.0, chance=0.0),
    Family(
        "a roll-out without logs, large jobs",
        sizes=LARGE,
        attempts=5_000,
        software="rollout",
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "brief outages of the cluster",
        wide=True,
        outage_days=0.001,
        hit=0.3,
        outages=10,
        symptom=0.5,
    ),
    Family(
        "many outages of small switches",
        nodes=128,
        users=20,
        attempts=8_000,
        switch=8,
        outages=20,
        hit=0.9,
    ),
    Family(
        "few users, large jobs, steady software",
        users=6,
        sizes=LARGE,
        attempts=4_000,
        software="steady",
        chance=0.005,
        per_node=True,
    ),
    Family(
        "medium jobs without logs, restarts",
        "chosen by",
        160,
        25,
        12_000,
        (1, 1, 2, 4, 8),
        node_law="lognormal",
        node_rate=0.006,
        lemons=6,
        software="restarts",
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "partial outages of small switches",
        "chosen by",
        switch=8,
        outages=20,
        hit=0.4,
        outage_days=0.01,
        symptom=0.5,
    ),
    Family(
        "outages of the cluster that end one job in ten",
        "chosen by",
        wide=True,
        hit=0.1,
        outage_days=0.005,
        chance=0.01,
    ),
    Family(
        "a roll-out, large jobs",
        "chosen by",
        sizes=LARGE,
        attempts=5_000,
        software="rollout",
        symptom=0.6,
        chance=0.001,
        per_node=True,
    ),
    Family(
        "equal nodes without logs, good software",
        "chosen by",
        node_law="equal",
        node_rate=0.006,
        lemons=0,
        software="none",
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "ten users, bad days",
        "chosen by",
        192,
        10,
        8_000,
        (1, 2, 4, 8, 16),
        symptom=0.7,
        crash=(0.5, 4.0),
    ),
    Family(
        "many faults, steady software",
        "chosen by",
        attempts=10_000,
        crash=(0.2, 6.0),
        node_law="lognormal",
        node_rate=0.02,
        software="steady",
        named=0.8,
    ),
    Family(
        "512 nodes, very large jobs",
        "chosen by",
        512,
        30,
        4_000,
        (16, 32, 64, 128),
        node_rate=0.002,
        switch=32,
        symptom=0.9,
    ),
    Family(
        "short jobs without logs, a roll-out",
        "chosen by",
        attempts=30_000,
        length=-2.6,
        arrays=6,
        software="rollout",
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "few symptoms, steady software, 64 nodes",
        "chosen by",
        64,
        15,
        6_000,
        (1, 1, 2, 4),
        software="steady",
        symptom=0.3,
        chance=0.005,
        outages=3,
    ),
    Family(
        "80 nodes, few users, outages of the cluster",
        "chosen by",
        80,
        9,
        5_000,
        (1, 1, 2, 4, 8),
        wide=True,
        outages=9,
        hit=0.8,
        outage_days=0.01,
        crash=(0.4, 3.0),
    ),
    Family(
        "steady software without logs, large jobs",
        "chosen by",
        sizes=(4, 8, 16, 32),
        attempts=6_000,
        software="steady",
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "hardly a crash of a program, a roll-out",
        "chosen by",
        attempts=9_000,
        crash=(0.1, 8.0),
        software="rollout",
        arrays=2,
        node_law="lognormal",
        node_rate=0.008,
        symptom=0.7,
    ),
    Family(
        "outages of large switches that end half the jobs",
        "chosen by",
        384,
        50,
        15_000,
        switch=64,
        outages=10,
        hit=0.5,
        outage_days=0.006,
        node_law="equal",
        symptom=0.6,
    ),
    Family(
        "restarts of daemons, small jobs",
        "chosen by",
        sizes=(1, 1, 1, 1, 2),
        software="restarts",
        outages=4,
        symptom=0.9,
        chance=0.03,
    ),
    Family(
        "no logs of nodes, many outages",
        "chosen by",
        200,
        30,
        15_000,
        switch=20,
        outages=18,
        hit=0.8,
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "five users, outages of the cluster",
        "held out",
        120,
        5,
        9_000,
        (1, 1, 2, 4),
        wide=True,
        hit=0.6,
        outage_days=0.008,
        software="none",
    ),
    Family(
        "twelve users, many arrays that crash at once",
        "held out",
        150,
        12,
        10_000,
        (1, 1, 1, 2, 4),
        arrays=12,
        outages=4,
        symptom=0.6,
    ),
    Family(
        "two users without logs, large jobs, bad days",
        "held out",
        100,
        2,
        4_000,
        (4, 8, 16),
        symptom=0.0,
        chance=0.0,
    ),
    Family(
        "outages of racks of four nodes",
        "held out",
        switch=4,
        outages=40,
        hit=1.0,
        outage_days=0.001,
        sizes=(1, 1, 2),
    ),
    Family(
        "long jobs of few users, restarts of daemons",
        "held out",
        160,
        14,
        3_000,
        software="restarts",
        length=0.2,
        symptom=0.5,
        crash=(0.4, 2.0),
    ),
    Family(
        "lognormal faults, a roll-out, symptoms by chance on every node",
        "held out",
        300,
        35,
        12_000,
        node_law="lognormal",
        node_rate=0.012,
        software="rollout",
        chance=0.006,
        per_node=True,
        symptom=0.7,
    ),
)
