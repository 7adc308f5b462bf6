"""What all tests of records need before they start."""

import warnings

from hypothesis import settings

# The first example of a codec loads a library, and a busy machine is not a slow parser.
settings.register_profile("records", deadline=None)
settings.load_profile("records")

# Our warnings are errors, and importing kafka-python warns.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
