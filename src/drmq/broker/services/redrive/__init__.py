"""Dead letters after they were written: looking at them, moving them back to where they came from, and purging them.

`letters` says what a letter is and what it becomes, `letter_filter` which letters are meant, `letter_pages` reads them.
`run` is one redrive, on the interface `World`; `world` is that of a broker. `service` answers requests, and drives the
redrives of the shards that this node leads. What is replicated is in `drmq.leases.redrive`.
"""
