"""Runs the scenarios in `groups/*.txt` against a group shard and compares what happens line by line.

A script is a list of blocks. A block is a few commands, `---`, and what they led to. Lines that start
with `#` are prose. `DRMQ_REWRITE_SCRIPTS=1 pytest tests/scripts/test_group_scripts.py` writes the
outcome into the files; review the difference like code.

Commands (`g` is the group unless `group=` says otherwise, times are milliseconds from 0):

    options NAME=VALUE...                         first, where the defaults will not do
    join CLIENT [id= instance= topics= owned= raw= protocols= type= session= rebalance=] [ask] [skip]
    sync MEMBER gen= [instance= protocol= type= assign=MEMBER:WORK,...]
    heartbeat MEMBER gen= [instance=]
    beat MEMBER epoch= [topics=]                  ShareGroupHeartbeat; `orders` has 3 partitions, `mails` 1
    share-describe [GROUP]...
    leave MEMBER | /INSTANCE | MEMBER/INSTANCE ...
    commit [TOPIC-PARTITION=OFFSET[@EPOCH][:METADATA]]... [member= gen= instance= keep=]
    fetch [TOPIC-PARTITION]...                    all, if none is named
    delete-offsets TOPIC-PARTITION...
    list [states= types=] / describe [GROUP]... / delete [GROUP]...
    advance MS                                    moves the clock, stopping at each deadline
    disconnect #TICKET...                         the connection behind a parked request dies
    restart                                       a new leader replays the log, byte by byte
    expire / forget TOPIC...

`ask` means a client new enough for MEMBER_ID_REQUIRED, `skip` one that knows `skip_assignment`. In the
outcome `log` is a record, `#3` the answer to the third request, and `t=` the time of a deadline.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from drmq.groups import (
    Answer,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeShareGroupsRequest,
    DescribeShareGroupsResponse,
    GroupDeleted,
    GroupMetadata,
    GroupOptions,
    GroupRecord,
    GroupRequest,
    GroupResponse,
    GroupShard,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberAssignment,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitted,
    OffsetDeleted,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetToCommit,
    PrepareShareGroupResponse,
    Protocol,
    ShareHeartbeatRequest,
    ShareHeartbeatResponse,
    Step,
    SyncGroupRequest,
    SyncGroupResponse,
    record_from_bytes,
    record_to_bytes,
)
from drmq.groups.messages import ShareAssignment
from drmq.groups.records import ShareGroupDeleted, ShareGroupMetadata, ShareMember, ShareMemberLeft
from drmq.groups.subscription import subscribed_topics
from drmq.model import LeaderEpoch, Offset, TopicId, TopicPartition

SCRIPTS = sorted((Path(__file__).parent / "groups").glob("*.txt"))
SHARE_TOPICS = {"orders": (TopicId(b"o" * 16), 3), "mails": (TopicId(b"m" * 16), 1)}
WALL_START_MS = 1_000_000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    """The outcome of a script is the recorded one."""
    recorded = script.read_text()
    outcome = run_script(recorded)
    if os.environ.get("DRMQ_REWRITE_SCRIPTS"):
        script.write_text(outcome)
        return
    assert outcome == recorded


def run_script(text: str) -> str:
    """The script with the outcomes that its commands have now."""
    scene = Scene()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n---")[0].split("\n")
        commands = [line for line in lines if line and not line.startswith("#")]
        outcome = [line for command in commands for line in scene.run(command)]
        blocks.append("\n".join([*lines, *(["---", *outcome] if commands else [])]))
    return "\n\n".join(blocks) + "\n"


class Arguments:
    """A command's words: `name=value` by name, the others in order."""

    def __init__(self, words: list[str]) -> None:
        self.words = [word for word in words if "=" not in word]
        self.named = dict(word.split("=", 1) for word in words if "=" in word)

    def text(self, name: str, default: str = "") -> str:
        return self.named.get(name, default)

    def maybe(self, name: str) -> str | None:
        return self.named.get(name)

    def number(self, name: str, default: int = 0) -> int:
        return int(self.named.get(name, default))

    def items(self, name: str) -> list[str]:
        return [item for item in self.text(name).split(",") if item]


class Scene:
    """A shard, its driver and its clock."""

    def __init__(self) -> None:
        self.options = GroupOptions()
        self.now_ms = 0
        self.ticket = 0
        self.ids: Counter[str] = Counter()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self.new_shard()

    def new_shard(self) -> GroupShard:
        """What another node becomes when it takes over: everything it knows, it has read as bytes."""
        shard = GroupShard(self.options, self.new_member_id, partitions_of=SHARE_TOPICS.get)
        for key, value in self.log:
            shard.replay(record_from_bytes(key, value))
        shard.become_leader(self.now_ms)
        return shard

    def new_member_id(self, name: str) -> str:
        self.ids[name] += 1
        return f"{name}-{self.ids[name]}"

    @property
    def wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        arguments = Arguments(words)
        match verb:
            case "options":
                self.options = GroupOptions(**{name: int(value) for name, value in arguments.named.items()})
                self.shard = self.new_shard()
                return []
            case "advance":
                return self.advance(int(words[0]))
            case "restart":
                lines = self.take(self.shard.resign())
                self.shard = self.new_shard()
                return [*lines, "a new leader has replayed the log"]
            case "disconnect":
                tickets = [int(word.removeprefix("#")) for word in words]
                return self.take(self.shard.on_disconnect(tickets, self.now_ms, self.wall_ms)) or ["nothing"]
            case "expire":
                return self.take(self.shard.expire_offsets(self.wall_ms)) or ["nothing"]
            case "forget":
                return self.take(self.shard.forget_topics(words)) or ["nothing"]
            case _:
                self.ticket += 1
                request = parse_request(verb, arguments, words)
                lines = self.take(self.shard.handle(self.ticket, request, self.now_ms, self.wall_ms))
                own = f"#{self.ticket} "
                return lines if any(line.startswith(own) for line in lines) else [*lines, f"{own}waits"]

    def advance(self, duration_ms: int) -> list[str]:
        end_ms = self.now_ms + duration_ms
        lines: list[str] = []
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= end_ms:
            self.now_ms = deadline_ms
            outcome = self.take(self.shard.on_deadline(self.now_ms, self.wall_ms))
            after_ms = self.shard.next_deadline()
            assert after_ms is None or after_ms > self.now_ms, "a deadline is due again at once"
            lines += [f"t={self.now_ms}", *outcome]
        self.now_ms = end_ms
        return lines or ["nothing"]

    def take(self, step: Step) -> list[str]:
        for record in step.records:
            self.log.append(record_to_bytes(record))
            self.shard.replay(record)
        return [*map(show_record, step.records), *map(show_answer, step.answers)]


def parse_request(verb: str, arguments: Arguments, words: list[str]) -> GroupRequest:
    group_id = arguments.text("group", "g")
    first = arguments.words[0] if arguments.words else ""
    generation = arguments.number("gen", -1)
    match verb:
        case "join":
            return parse_join(group_id, first, arguments)
        case "sync":
            shares = (share.split(":") for share in arguments.items("assign"))
            return SyncGroupRequest(
                group_id,
                generation,
                first,
                arguments.maybe("instance"),
                arguments.maybe("type"),
                arguments.maybe("protocol"),
                tuple(MemberAssignment(member_id, work.encode()) for member_id, work in shares),
            )
        case "heartbeat":
            return HeartbeatRequest(group_id, generation, first, arguments.maybe("instance"))
        case "beat":
            named = arguments.maybe("topics")
            topics = None if named is None else tuple(filter(None, named.split(",")))
            return ShareHeartbeatRequest(group_id, first, int(arguments.maybe("epoch") or 0), topics, first, "/host")
        case "share-describe":
            return DescribeShareGroupsRequest(tuple(arguments.words) or (group_id,))
        case "leave":
            leavers = (word.partition("/") for word in arguments.words)
            return LeaveGroupRequest(group_id, tuple(LeavingMember(m, i or None) for m, _, i in leavers))
        case "commit":
            names = {"group", "member", "gen", "instance", "keep"}
            offsets = tuple(parse_offset(w) for w in words if w.split("=")[0] not in names)
            keep = arguments.maybe("keep")
            return OffsetCommitRequest(
                group_id,
                offsets,
                generation,
                arguments.text("member"),
                arguments.maybe("instance"),
                None if keep is None else int(keep),
            )
        case "fetch":
            return OffsetFetchRequest(group_id, tuple(map(parse_partition, arguments.words)) or None)
        case "delete-offsets":
            return OffsetDeleteRequest(group_id, tuple(map(parse_partition, arguments.words)))
        case "list":
            return ListGroupsRequest(tuple(arguments.items("states")), tuple(arguments.items("types")))
        case "describe":
            return DescribeGroupsRequest(tuple(arguments.words) or ("g",))
        case "delete":
            return DeleteGroupsRequest(tuple(arguments.words) or ("g",))
    raise ValueError(f"unknown command {verb!r}")


def parse_join(group_id: str, client_id: str, arguments: Arguments) -> JoinGroupRequest:
    topics = arguments.items("topics") or ["t"]
    metadata = subscription(topics, arguments.text("owned").encode())
    if "raw" in arguments.named:
        metadata = arguments.text("raw").encode()
    names = arguments.items("protocols") if "protocols" in arguments.named else ["range"]
    return JoinGroupRequest(
        group_id=group_id,
        member_id=arguments.text("id"),
        protocol_type=arguments.text("type", "consumer"),
        protocols=tuple(Protocol(name, metadata) for name in names),
        session_timeout_ms=arguments.number("session", 10_000),
        rebalance_timeout_ms=arguments.number("rebalance", 60_000),
        instance_id=arguments.maybe("instance"),
        client_id=client_id,
        client_host="host",
        member_id_required="ask" in arguments.words,
        supports_skip_assignment="skip" in arguments.words,
    )


def subscription(topics: list[str], owned: bytes) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\x00\x01" + len(topics).to_bytes(4, "big") + names + len(owned).to_bytes(4, "big") + owned


def parse_partition(word: str) -> TopicPartition:
    topic, _, partition = word.rpartition("-")
    return TopicPartition(topic, int(partition))


def parse_offset(word: str) -> OffsetToCommit:
    where, _, what = word.partition("=")
    number, _, metadata = what.partition(":")
    offset, _, epoch = number.partition("@")
    return OffsetToCommit(*parse_partition(where), Offset(int(offset)), LeaderEpoch(int(epoch or -1)), metadata)


def show_record(record: GroupRecord) -> str:
    match record:
        case GroupMetadata():
            members = " ".join(
                member.member_id
                + (f"/{member.instance_id}" if member.instance_id else "")
                + (f":{member.assignment.decode()}" if member.assignment else "")
                for member in record.members
            )
            return (
                f"log {record.group_id}: {record.state.value} gen={record.generation} "
                f"protocol={record.protocol_name} leader={record.leader} [{members}]"
            )
        case GroupDeleted():
            return f"log {record.group_id}: deleted"
        case OffsetCommitted():
            keep = "" if record.expire_ms is None else f" until={record.expire_ms - WALL_START_MS}"
            return f"log {record.group_id}: {record.topic_partition} at {record.offset}{keep}"
        case OffsetDeleted():
            return f"log {record.group_id}: {record.topic_partition} forgotten"
        case ShareGroupMetadata():
            deleting = " deleting" if record.is_deleting else ""
            return f"log {record.group_id}: share group epoch={record.epoch}{deleting}"
        case ShareGroupDeleted():
            return f"log {record.group_id}: share group deleted"
        case ShareMember():
            return f"log {record.group_id}: share member {record.member_id} reads {' '.join(record.topics)}"
        case ShareMemberLeft():
            return f"log {record.group_id}: share member {record.member_id} left"


def show_answer(answer: Answer) -> str:
    return f"#{answer.ticket} {show_response(answer.response)}"


def show_response(response: GroupResponse) -> str:
    match response:
        case JoinGroupResponse():
            line = f"join {response.error.name} member={response.member_id}"
            if response.generation < 0:
                return line
            line += f" gen={response.generation} protocol={response.protocol_name} leader={response.leader}"
            if response.skip_assignment:
                line += " skip-assignment"
            members = " ".join(f"{m.member_id}:{show_metadata(m.metadata)}" for m in response.members)
            return line + (f" [{members}]" if members else "")
        case SyncGroupResponse():
            line = f"sync {response.error.name}"
            return line if response.error else f"{line} assignment={response.assignment.decode()!r}"
        case HeartbeatResponse():
            return f"heartbeat {response.error.name}"
        case LeaveGroupResponse():
            members = " ".join(f"{m.member_id or '/' + (m.instance_id or '')}={m.error.name}" for m in response.members)
            return f"leave {response.error.name} {members}".rstrip()
        case OffsetCommitResponse():
            return "commit " + " ".join(f"{r.topic}-{r.partition}={r.error.name}" for r in response.results)
        case OffsetFetchResponse():
            offsets = (
                f"{o.topic}-{o.partition}={o.offset}"
                + (f"@{o.leader_epoch}" if o.leader_epoch >= 0 else "")
                + (f":{o.metadata}" if o.metadata else "")
                for o in response.offsets
            )
            return f"fetch {response.error.name} {' '.join(offsets)}".rstrip()
        case OffsetDeleteResponse():
            results = " ".join(f"{r.topic}-{r.partition}={r.error.name}" for r in response.results)
            return f"delete-offsets {response.error.name} {results}".rstrip()
        case ListGroupsResponse():
            groups = (f"{g.group_id}({g.protocol_type or 'no type'} {g.state} {g.group_type})" for g in response.groups)
            return f"list {' '.join(groups)}".rstrip()
        case DescribeGroupsResponse():
            return "describe " + " | ".join(
                f"{g.group_id} {g.error.name} {g.state} protocol={g.protocol_name or None} "
                f"[{' '.join(f'{m.member_id}:{m.assignment.decode()}' for m in g.members)}]"
                for g in response.groups
            )
        case PrepareShareGroupResponse():
            return f"prepare {response.error.name}"
        case ShareHeartbeatResponse():
            line = f"beat {response.error.name} {response.member_id}"
            if response.error:
                return f"{line}: {response.error_message}"
            shown = "as before" if response.assignment is None else show_assignment(response.assignment)
            return f"{line} epoch={response.member_epoch} [{shown}]"
        case DescribeShareGroupsResponse():
            return "share-describe " + " | ".join(
                f"{g.group_id} {g.error.name} {g.state} epoch={g.epoch} "
                f"[{' '.join(f'{m.member_id}:{show_assignment(m.assignment)}' for m in g.members)}]"
                for g in response.groups
            )
        case DeleteGroupsResponse():
            return "delete " + " ".join(f"{r.group_id}={r.error.name}" for r in response.results)


def show_assignment(assignment: ShareAssignment) -> str:
    names = {topic_id: name for name, (topic_id, _) in SHARE_TOPICS.items()}
    return " ".join(f"{names[topic_id]}-{','.join(map(str, parts))}" for topic_id, parts in assignment)


def show_metadata(metadata: bytes) -> str:
    topics = subscribed_topics(metadata)
    if topics is None:
        return "?"
    owned = metadata[metadata.rfind(b"\x00") + 2 :].decode(errors="replace")
    names = "+".join(sorted(topics))
    return f"{names}(owns {owned})" if owned else names
