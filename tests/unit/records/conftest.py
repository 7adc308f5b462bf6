"""What all tests of records need before they start."""

import warnings

# Our warnings are errors, and importing kafka-python warns.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401
