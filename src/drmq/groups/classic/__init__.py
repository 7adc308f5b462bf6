"""The classic rebalance protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A group agrees on its members and their assignments in two rounds. In the *join round* all members (re)join, and the
responses are held back until the membership is known; they carry a new generation and name a leader, which is one of
the clients and divides the partitions. In the *sync round* all members ask for their assignment, and these responses
are held back until the leader has sent the assignments. The coordinator never looks inside them, so eager, sticky and
cooperative assignors all work with the same server.

- `group`: one group and its members as the leader of the shard sees them, and queries about them.
- `rounds`: the changes of a group's state, and every deadline.
- `join`: which members may join, and the effect of a join in each state.
- `membership`: sync, heartbeat, leave: the requests of members.

All of this is *soft* state: it is built from the stored groups when leadership begins, discarded when it ends, and may
contain a join round that is not in the log. Outside a join round it equals the log.
"""

from drmq.groups.classic.group import Group, Member
from drmq.groups.classic.join import Joins
from drmq.groups.classic.membership import Membership, member_error
from drmq.groups.classic.rounds import Rounds

__all__ = ["Group", "Joins", "Member", "Membership", "Rounds", "member_error"]
