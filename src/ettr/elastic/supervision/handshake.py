"""How an agent and the supervisor of a run prove to each other that they know the run's secret.

Standard library only. The supervisor sends a nonce; the agent answers with its own and with a keyed
hash of both; the welcome carries the supervisor's hash. The secret itself is never sent, and an
answer that was overheard is of no use a second time. What follows is neither encrypted nor signed:
whoever can change packets on the way is not kept out.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass

from ettr.elastic.membership.rendezvous import PROTOCOL
from ettr.elastic.supervision.channel import ChannelClosedError, Message, excerpt, whole_number
from ettr.elastic.supervision.node_identity import NodeIdentity
from ettr.errors import UsageError

# what every scheduler and DNS calls nodes; nothing that a terminal would obey
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
_LARGEST_INDEX = 1 << 20
_NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Hello:
    """What an agent says of its node."""

    identity: NodeIdentity
    n_ranks: int
    nonce: str


class RefusedHelloError(ChannelClosedError):
    """Who has connected does not become a node; the message is for its user."""


def new_nonce() -> str:
    """A number that is used once."""
    return secrets.token_hex(_NONCE_BYTES)


def proof(token: str, role: str, supervisor_nonce: str, agent_nonce: str) -> str:
    """What shows knowledge of the secret.

    Args:
        token: the secret; empty: there is none, and the proof proves nothing.
        role: `agent` or `supervisor`, so that neither can send back what the other has sent.
    """
    text = f"ettr elastic {role} {supervisor_nonce} {agent_nonce}"
    return hmac.digest(token.encode(), text.encode(), "sha256").hex()


def check_proof(message: Message, expected: str) -> bool:
    """Whether a message carries a proof, in a time that shows nothing of how much is right."""
    return hmac.compare_digest(ascii(message.get("proof")), ascii(expected))


def check_node(identity: NodeIdentity) -> None:
    """Refuse names that are not short and plain.

    Raises:
        UsageError: what was given, and what is allowed.
    """
    for option, name in (("--node-name", identity.name), ("--rack", identity.rack)):
        if name is not None and not _PLAIN_NAME.fullmatch(name):
            raise UsageError(
                f"{option} {excerpt(name)}: give letters, digits and . _ : - only, at most 128"
            )


def read_hello(message: Message, *, token: str, nonce: str, n_ranks: int) -> Hello:
    """The hello of an agent.

    Args:
        nonce: that it was sent.
        n_ranks: of every node of the run.

    Raises:
        RefusedHelloError: it is no agent of this run, or not one that fits.
    """
    if message["kind"] != "hello":
        raise RefusedHelloError("not an agent: it says no hello")
    if message.get("protocol") != PROTOCOL:
        raise RefusedHelloError(
            f"it has version {excerpt(message.get('protocol'))} of the elastic protocol, the "
            f"supervisor {PROTOCOL}: run the same ettr on every node"
        )
    agent_nonce = message.get("nonce")
    if not isinstance(agent_nonce, str) or not re.fullmatch(r"[0-9a-f]{32}", agent_nonce):
        raise RefusedHelloError("not an agent: it sends no nonce")
    if not check_proof(message, proof(token, "agent", nonce, agent_nonce)):
        raise RefusedHelloError(
            "not an agent of this run: set the same ETTR_ELASTIC_TOKEN on every node"
        )
    if isinstance(message.get("ranks"), bool) or message.get("ranks") != n_ranks:
        raise RefusedHelloError(
            f"it has --ranks {excerpt(message.get('ranks'))}, the supervisor {n_ranks}: give the "
            f"same --ranks on every node"
        )
    return Hello(_identity(message), n_ranks, agent_nonce)


def _identity(message: Message) -> NodeIdentity:
    name, rack, index = message.get("node"), message.get("rack"), message.get("index")
    if not isinstance(name, str) or not isinstance(rack, str | None):
        raise RefusedHelloError("its name or rack is no text")
    if index is not None:
        index = whole_number(message, "index")
        if not 0 <= index < _LARGEST_INDEX:
            raise RefusedHelloError(f"its number among the nodes is {index}")
    identity = NodeIdentity(name, index, rack)
    try:
        check_node(identity)
    except UsageError as error:
        raise RefusedHelloError(str(error)) from error
    return identity
