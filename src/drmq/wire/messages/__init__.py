"""The messages of the Kafka protocol, one module per API, each with its request and its response.

A class lists every field of every version that DRMQ speaks. `drmq.wire.fields` explains the terms, and
`drmq.wire.codec` turns a class into readers and writers. Nothing is imported here, so that a process loads only the
modules of the APIs that it uses. `drmq.wire.apis` finds a module by its API key.
"""
