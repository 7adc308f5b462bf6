"""Tests of `drmq.wire`."""
