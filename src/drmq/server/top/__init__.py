"""`drmq top`: the overview of a cluster, live in a terminal.

`observer` asks the nodes over the Kafka protocol, on a thread of its own, and makes a `Snapshot`. `text` makes lines of
a snapshot, without colour and for any width. `app` puts them on the screen, with textual, and handles the keys. It
works without a gateway.
"""
