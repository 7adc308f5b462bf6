"""Both builders, so that every test of behaviour runs on each."""

from __future__ import annotations

import warnings

import pytest

from drmq.columnar.implementation import choose
from drmq.columnar.outcome import Builder

# Our warnings are errors, and importing kafka-python warns.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # noqa: F401


@pytest.fixture(params=["pure", "compiled"], scope="session")
def builder(request: pytest.FixtureRequest) -> type[Builder]:
    try:
        return choose(request.param)[1]
    except ImportError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def both() -> tuple[type[Builder], type[Builder]]:
    """The pure builder and the compiled one."""
    try:
        return choose("pure")[1], choose("compiled")[1]
    except ImportError as error:
        pytest.skip(str(error))
