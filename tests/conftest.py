"""What holds for every test: one hypothesis profile, whose examples may take as long as the machine needs."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("drmq", deadline=None, print_blob=True)
settings.load_profile("drmq")
