"""The classic rebalance protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A group agrees on who is in it and who reads what in two rounds. In the *join round* everybody (re)joins
and the answers are held back until the membership is known; the answers carry a new generation and
name a leader, a client, that divides the work. In the *sync round* everybody asks for its share, and
these answers are held back until the leader has sent the division. The coordinator never looks inside
it, which is why eager, sticky and cooperative assignors all work with the same server.

- `group`: one group and its members as the leader of the shard sees them, and questions about them.
- `rounds`: what moves a group from state to state, and every deadline.
- `join`: who may join, and what a join means in each state.
- `membership`: sync, heartbeat, leave: the requests of those who are in.

All of it is *soft*: it is built from the stored groups when leadership begins, thrown away when it
ends, and may hold a join round that the log knows nothing of. Outside a join round it equals the log.
"""

from drmq.groups.classic.group import Group, Member
from drmq.groups.classic.join import Joins
from drmq.groups.classic.membership import Membership, member_error
from drmq.groups.classic.rounds import Rounds

__all__ = ["Group", "Joins", "Member", "Membership", "Rounds", "member_error"]
