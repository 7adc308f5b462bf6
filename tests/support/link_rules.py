"""What a link between two nodes does to the data sent over it, and how the rules reach the process that applies them.

`support.switch` and `support.proxy` are processes of their own, so that a busy test does not slow the network down.
They read one JSON object a line from standard input, the rules of all links, and answer with a line once these hold.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

CLIENTS = 0
"""The number of the place where all clients are."""


@dataclass(frozen=True, slots=True)
class LinkRule:
    """What happens to what one node sends to another. The default lets everything through at once."""

    cut: bool = False
    delay_ms: float = 0
    jitter_ms: float = 0
    """Delay that varies by so much either way; where it lets frames overtake each other, they do."""
    loss: float = 0
    """The part of frames that is lost, 0 to 1."""
    duplicate: float = 0
    """The part of frames that arrives twice."""
    bytes_per_s: int = 0
    """The most that gets through; 0 without limit."""
    held_api: int = -1
    """Requests of this Kafka API are held back; none by default."""
    held_part: float = 1.0
    """The part of these that is held, 0 to 1."""
    held_ms: float = 0
    snapshot_bytes_max: int = -1
    """How many bytes of snapshots may have passed in all, on all links, until this link takes no more of them."""


OPEN = LinkRule()


@dataclass(slots=True)
class LinkRules:
    """The rules of all links by sender and receiver; a link without one is open."""

    by_link: dict[tuple[int, int], LinkRule] = field(default_factory=dict)

    def get(self, sender: int, receiver: int) -> LinkRule:
        return self.by_link.get((sender, receiver), OPEN)

    def to_line(self) -> bytes:
        rows = [[sender, receiver, asdict(rule)] for (sender, receiver), rule in self.by_link.items()]
        return json.dumps(rows).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> LinkRules:
        return cls({(sender, receiver): LinkRule(**fields) for sender, receiver, fields in json.loads(line)})
