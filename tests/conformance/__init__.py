"""Unmodified Kafka clients against a real broker: real clients are the specification.

Each test runs against DRMQ, or, with `DRMQ_TEST_BOOTSTRAP=host:port`, against whatever broker listens there. Apache
Kafka is the reference: a test that fails on it states something that Kafka does not do, and is wrong unless `skips`
says why we differ on purpose.
"""
