"""The things being measured, behind one small interface: start, stop, pid, produce, consume."""

from bench.systems.base import System, Unavailable

__all__ = ["System", "Unavailable"]
