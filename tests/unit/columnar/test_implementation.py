"""Which builder is used, and how to find out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from drmq.columnar import IMPLEMENTATION, implementation, pure
from drmq.columnar.implementation import BUILDER, choose
from drmq.columnar.outcome import INTERFACE


def test_the_package_says_what_it_uses() -> None:
    assert choose(IMPLEMENTATION) == (IMPLEMENTATION, BUILDER)


def test_pure_on_request() -> None:
    assert choose("pure") == ("pure", pure.Builder)


@pytest.mark.parametrize("wanted", [None, ""])
def test_compiled_if_it_is_there(wanted: str | None) -> None:
    try:
        expected = choose("compiled")
    except ImportError:
        expected = choose("pure")
    assert choose(wanted) == expected


def test_a_value_that_is_none() -> None:
    with pytest.raises(ImportError, match="DRMQ_COLUMNAR=fast"):
        choose("fast")


def test_a_compiled_builder_of_another_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build left over from another version is not used; asked for by name, it is explained."""
    try:
        choose("compiled")
    except ImportError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(implementation, "INTERFACE", 99)
    assert choose(None)[0] == "pure"
    with pytest.raises(ImportError, match=rf"interface {INTERFACE}, and this is 99.*C compiler"):
        choose("compiled")


def test_without_the_compiled_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without it works, and says so if it was asked for by name."""
    monkeypatch.setitem(sys.modules, "drmq.columnar._decoder", None)
    monkeypatch.delattr("drmq.columnar._decoder", raising=False)
    assert choose(None) == ("pure", pure.Builder)
    with pytest.raises(ImportError, match="C compiler"):
        choose("compiled")


@pytest.mark.parametrize("wanted", ["pure", "compiled", "other"])
def test_the_variable(wanted: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import drmq.columnar; print(drmq.columnar.IMPLEMENTATION)"],
        env=os.environ | {"DRMQ_COLUMNAR": wanted},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode == 0:
        assert result.stdout.strip() == wanted
    else:
        assert wanted != "pure"
        assert f"DRMQ_COLUMNAR={wanted}" in result.stderr
