"""The tour that `make demo` gives: DRMQ's main job, end to end, on real data, with a real crash in it."""

import os

# The nodes that are started here serve no HTTP: it is not what is measured or shown.
os.environ.setdefault("DRMQ_GATEWAY", "false")
