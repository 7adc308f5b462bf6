"""Derives the options of a node's components from the options of the node."""

from __future__ import annotations

from drmq.broker.options import BrokerOptions
from drmq.catalog import TopicDefaults
from drmq.groups import GroupOptions
from drmq.raft import RaftOptions
from drmq.transport.peers import PeerOptions

_PEERS = PeerOptions()


def raft_options_of(options: BrokerOptions) -> RaftOptions:
    return RaftOptions(
        election_timeout_ticks=max(3, options.election_timeout_ms // options.tick_ms),
        heartbeat_ticks=max(1, options.raft_heartbeat_ms // options.tick_ms),
        snapshot_chunk_bytes_max=options.snapshot_part_bytes,
    )


def peer_options_of(options: BrokerOptions) -> PeerOptions:
    """While a group sleeps, its members are judged by the heartbeats of their nodes.

    The timeout of a node must therefore not exceed the election timeout of a group.
    """
    timeout_ms = min(_PEERS.peer_timeout_ms, options.election_timeout_ms)
    interval_ms = max(1, min(_PEERS.heartbeat_interval_ms, timeout_ms // 5))
    return PeerOptions(heartbeat_interval_ms=interval_ms, peer_timeout_ms=timeout_ms)


def topic_defaults_of(options: BrokerOptions) -> TopicDefaults:
    return TopicDefaults(
        max_message_bytes=options.message_bytes_max,
        retention_ms=options.retention_ms,
        retention_bytes=options.retention_bytes,
        segment_bytes=options.segment_bytes,
        segment_ms=options.segment_ms,
        min_insync_replicas=options.min_insync_replicas,
    )


def group_options_of(options: BrokerOptions) -> GroupOptions:
    return GroupOptions(
        session_timeout_ms_min=options.group_session_timeout_min_ms,
        session_timeout_ms_max=options.group_session_timeout_max_ms,
        initial_rebalance_delay_ms=options.group_initial_rebalance_delay_ms,
        group_size_max=options.group_size_max,
        offset_metadata_size_bytes_max=options.offset_metadata_bytes_max,
        offsets_retention_ms=options.offsets_retention_ms,
        simple_offsets_retention_ms=options.simple_offsets_retention_ms,
        groups_max=options.groups_max,
        state_bytes_max=options.group_state_bytes_max,
    )
