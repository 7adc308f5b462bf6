"""`drmq shell`: a prompt, or a pipe, for sending messages and for working on them by hand.

A line goes through three steps. `grammar.parse` turns it into a value, without a broker. `Session.execute` carries the
value out through the Python client, and hands back replies: each is a text for people and the same facts for programs.
`terminal` (prompt_toolkit, with history, completion and a toolbar) and `script` (a pipe) read lines and print replies.
Only `terminal` imports prompt_toolkit.

A session has one consumer at a time, in one of two modes. In group mode, the consumer leases messages: `poll` shows
them and holds them until `ack`, `nack` or `reject`, and leaving gives back what is held. Several shells of one group
share the messages. In single mode, the session reads by itself, from any position, and commits only if it is told to.

What is missing: transactions, several topics at a time, and values that are not text; `drmq produce` and `drmq consume`
handle bytes.
"""
