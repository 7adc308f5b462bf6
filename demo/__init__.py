"""The tour that `make demo` gives: DRMQ's main job, end to end, on real data, with a real crash in it."""
