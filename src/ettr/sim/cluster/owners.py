"""Who owns the jobs: names of users and accounts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ettr.errors import UsageError
from ettr.sim.cluster.scenario import ClusterScenario
from ettr.sim.cluster.scenario_sharing import EACH


@dataclass(frozen=True, slots=True)
class Owners:
    """Names by the numbers that jobs carry.

    Attributes:
        users: Names of the users.
        accounts: Names of the accounts.
        members: Number of users of each account.
    """

    users: Sequence[str]
    accounts: Sequence[str]
    members: Sequence[int]


def owners_of(scenario: ClusterScenario) -> Owners:
    """The users and accounts of a scenario; user k is charged to account k modulo the accounts."""
    users, accounts = scenario.users.users, scenario.users.accounts
    return Owners(
        [f"user{k + 1}" for k in range(users)],
        [f"team{k + 1}" for k in range(accounts)],
        [len(range(k, users, accounts)) for k in range(accounts)],
    )


def check_owners(scenario: ClusterScenario, owners: Owners) -> None:
    """Check that the scenario names nobody who does not exist.

    Raises:
        UsageError: a quota or shares are of nobody; all are listed at once.
    """
    known = {"user": set(owners.users), "account": set(owners.accounts)}
    examples = {"user": owners.users, "account": owners.accounts}
    problems = [
        f"\n  quotas.name: no {one.scope} is called {one.name!r}; names are such as "
        f"{', '.join(examples[one.scope][:3])}"
        for one in scenario.quotas
        if one.scope in known and one.name != EACH and one.name not in known[one.scope]
    ]
    problems += [
        f"\n  accounts.name: no account is called {one.name!r}; names are such as "
        f"{', '.join(owners.accounts[:3])}"
        for one in scenario.accounts
        if one.name not in known["account"]
    ]
    if problems:
        raise UsageError(f"scenario {scenario.name!r} cannot be simulated:{''.join(problems)}")
