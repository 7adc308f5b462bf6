"""Connections over asyncio: the listener, its limits, and frames in and out in order.

This package moves frames and protects the process from its peers: sizes, counts and times are
bounded here, before anything is parsed. What a frame means is `drmq.kafka`'s to know.
"""

from drmq.transport.connection import Answer, Connection, FrameHandler, Pause
from drmq.transport.limits import ListenerOptions
from drmq.transport.listener import Listener

__all__ = ["Answer", "Connection", "FrameHandler", "Listener", "ListenerOptions", "Pause"]
