"""Connections over asyncio: the listener, its limits, and frames received and sent in order.

This package moves frames and protects the process from its peers: sizes, counts and times are limited here, before
anything is parsed. `drmq.kafka` interprets the frames.
"""

from drmq.transport.connection import Answer, Connection, FrameHandler, Pause
from drmq.transport.limits import ListenerOptions
from drmq.transport.listener import Listener

__all__ = ["Answer", "Connection", "FrameHandler", "Listener", "ListenerOptions", "Pause"]
