"""Configuration, wiring, command line and `main`: the only package that constructs a node.

The packages below this one take values and return values. This package reads those values from flags, environment and
files (`config`, `settings`), builds a running node from them (`node`), runs nodes in the background as a small local
cluster (`local`), and provides the command line (`cli`). `logs` decides where log lines go and in which format. `docs`
generates the reference pages from the same definitions.

This module imports nothing: `drmq --help` must not load a broker that it does not start.
"""
