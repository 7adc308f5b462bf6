"""The only place that builds: configuration, wiring, command line and `main`.

Everything below this package takes values and gives values. Here they are read from flags,
environment and files (`config`, `settings`), put together into a running node (`node`), run in
the background as a small local cluster (`local`), and offered to a person (`cli`). `logs` says
where log lines go and in which form. `docs` writes the reference pages from the same definitions.

Nothing is imported here: `drmq --help` must not pay for a broker it does not start.
"""
