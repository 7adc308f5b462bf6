"""Dead letters as the API shows them."""

from __future__ import annotations

from drmq.client import Admin, ClientError
from drmq.client.dead_letters import DeadLetter, Redrive
from drmq.gateway.group_types import DeadLetterTopic, LetterView, RedriveView
from drmq.gateway.record_text import shown, shown_headers


def list_topics(admin: Admin) -> list[DeadLetterTopic]:
    """All dead-letter topics. One that does not answer is left out."""
    rows = []
    for topic in admin.dead_letters.topics():
        try:
            status = admin.dead_letters.status(topic, with_letters=True)
        except ClientError:
            continue
        ends = [letter for letter in (status.oldest, status.newest) if letter is not None]
        rows.append(
            DeadLetterTopic(
                topic,
                status.waiting,
                status.purged,
                sorted({letter.group for letter in ends}),
                None if status.oldest is None else letter_view(status.oldest),
                None if status.newest is None else letter_view(status.newest),
                redrive_view(status.redrive),
            )
        )
    return rows


def letter_view(letter: DeadLetter) -> LetterView:
    """A letter as a person reads it."""
    key, key_format, key_cut = shown(letter.key)
    value, value_format, value_cut = shown(letter.value)
    headers, headers_cut = shown_headers(letter.headers)
    return LetterView(
        partition=letter.partition,
        offset=letter.offset,
        timestamp_ms=letter.timestamp_ms,
        key=key,
        value=value,
        headers=headers,
        key_format=key_format,
        value_format=value_format,
        is_truncated=key_cut or value_cut or headers_cut,
        origin_topic=letter.origin_topic,
        origin_partition=letter.origin_partition,
        origin_offset=letter.origin_offset,
        group=letter.group,
        reason=letter.reason,
        attempts=letter.attempts,
        first_failed_ms=letter.first_failed_ms,
        last_failed_ms=letter.last_failed_ms,
        has_record=letter.has_record,
        redrive_count=letter.redrive_count,
    )


def redrive_view(found: Redrive | None) -> RedriveView | None:
    """The redrive that runs or ran last."""
    if found is None:
        return None
    return RedriveView(
        found.number,
        found.state,
        found.started_ms,
        found.ended_ms,
        found.filter,
        found.count_max,
        found.redriven,
        found.skipped,
        found.failed,
        found.reason,
    )
