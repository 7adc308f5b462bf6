"""The packages: complete, installable on any recent Linux, and readable on an index."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from drmq.model import DrmqError
from drmq.server.config import ServerConfig
from drmq.server.node import open_store

ROOT = Path(__file__).resolve().parents[1]
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+://)[^)]*\)")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """What hatchling runs."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(kind: str, source: Path, target: Path, **environment: str) -> Path:
    """Build a package with what is installed here."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(target), str(source)],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
        timeout=300,
    )
    (found,) = target.iterdir()
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    place = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, place / "built")) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (unpacked,) = (place / "unpacked").iterdir()
    return unpacked


def test_source_distribution_has_all_files(sdist: Path) -> None:
    """Everything that is in the repository: tests, demo and tools run from it as from a clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
    packed = {str(path.relative_to(sdist)) for path in sdist.rglob("*") if path.is_file()}
    assert not tracked - packed
    assert not {name.partition("/")[0] for name in packed} & {".git", ".venv", "dist", "drmq-local"}
    assert not [name for name in packed if name.endswith((".pyc", ".so"))]


def test_wheel_from_the_source_distribution_works(sdist: Path, tmp_path: Path) -> None:
    """It has every module and what is not Python, a pure tag without the decoder, and a broker that serves."""
    wheel = build("wheel", sdist, tmp_path / "built", DRMQ_COLUMNAR="pure", DRMQ_DASHBOARD="none")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    for package in ("drmq", "pyspark_drmq"):
        for path in (ROOT / "src" / package).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc", ".so", ".new"):
                assert (tmp_path / "site" / path.relative_to(ROOT / "src")).exists(), path
    program = (
        "import drmq\n"
        "from drmq.server.cli import main\n"
        "from drmq.testing import Broker\n"
        "assert main(['--version']) == 0\n"
        "with Broker(storage='disk') as broker:\n"
        "    broker.create_topic('t')\n"
        "    assert main(['topic', 'ls', '-b', broker.bootstrap_servers]) == 0\n"
        "print(drmq.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "site" / "drmq" / "__init__.py")


def test_index_shows_no_relative_link(sdist: Path) -> None:
    """On the page of an index, a relative link leads nowhere. This is the text that is uploaded."""
    text = (sdist / "PKG-INFO").read_text()
    assert "# DRMQ\n" in text
    assert not RELATIVE_LINK.findall(text)


def test_links_lead_to_the_repository_as_soon_as_there_is_one(hooks: ModuleType) -> None:
    """To the files of this version, each of which exists; and the project has addresses."""
    text = hooks.index_text((ROOT / "README.md").read_text(), "https://example.org/drmq", "1.2.3")
    assert not RELATIVE_LINK.findall(text)
    links = re.findall(r"\]\(https://example\.org/drmq/blob/v1\.2\.3/([^)#]*)[^)]*\)", text)
    assert len(links) > 10
    assert all((ROOT / path).exists() for path in links)
    assert hooks.project_urls("") == {}
    urls = hooks.project_urls("https://example.org/drmq")
    assert urls.keys() >= {"Homepage", "Documentation", "Changelog", "Source", "Issues"}
    for url in urls.values():
        path = url.partition("/blob/main/")[2]
        assert url.startswith("https://example.org/drmq")
        assert not path or (ROOT / path).exists()


NEEDS_GLIBC = """
Dynamic Section:
  NEEDED               libc.so.6
Version References:
  required from libc.so.6:
    0x06969194 0x00 03 GLIBC_{}
    0x09691a75 0x00 02 GLIBC_2.2.5
"""


@pytest.mark.parametrize(
    ("said", "tag"),
    [
        (NEEDS_GLIBC.format("2.14"), "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        (NEEDS_GLIBC.format("2.34"), "manylinux_2_34_x86_64"),
        (NEEDS_GLIBC.format("2.14").replace("libc.so.6\nV", "libc.so.6\n  NEEDED  libz.so.1\nV"), "linux_x86_64"),
        ("  NEEDED               libc.musl-x86_64.so.1\n", "linux_x86_64"),
        (None, "linux_x86_64"),
    ],
)
def test_tag_of_a_wheel_is_what_its_library_allows(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, said: str | None, tag: str
) -> None:
    """No older glibc than it needs, and no manylinux if it needs anything else or that cannot be found out."""

    def objdump(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        if said is None:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, said)

    monkeypatch.setattr(hooks.sysconfig, "get_platform", lambda: "linux-x86_64")
    monkeypatch.setattr(hooks.subprocess, "run", objdump)
    assert hooks.platform_tag(Path("decoder.so")) == tag


def test_a_wheel_has_the_dashboard_if_it_can_be_built(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`pip install .` in a clone, where nobody has run `make`."""
    tool, index = tmp_path / "dashboard" / "tool.py", tmp_path / hooks.DASHBOARD
    tool.parent.mkdir()
    tool.write_text("print('No Node: install one.')")
    assert hooks.build_dashboard(tmp_path) == "No Node: install one."
    tool.write_text(f"import os; os.makedirs({str(index.parent)!r}); open({str(index)!r}, 'w').close()")
    monkeypatch.setenv("DRMQ_DASHBOARD", "none")
    assert hooks.build_dashboard(tmp_path) == "DRMQ_DASHBOARD=none"
    assert not index.exists()
    monkeypatch.delenv("DRMQ_DASHBOARD")
    assert hooks.build_dashboard(tmp_path) is None
    assert index.exists()
    tool.unlink()
    assert hooks.build_dashboard(tmp_path) is None, "it is there"


def test_other_systems_are_told_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on macOS, which lacks these; nothing is made in the data directory."""
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.delattr(os, "RWF_NOWAIT")
    with pytest.raises(DrmqError, match=r"on Linux only: this system .* has no fdatasync and no RWF_NOWAIT"):
        open_store(ServerConfig(data_dir=tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_directories_of_the_documentation_are_ignored() -> None:
    """Whoever follows the README in a clone does not commit the data of a broker."""
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    for page in (ROOT / "README.md", *(ROOT / "docs" / "guide").glob("*.md")):
        for place in re.findall(r"--data-dir (?:\./)?([a-z][\w-]*)", page.read_text()):
            assert place in ignored or (place.startswith("data") and "data*" in ignored), (page.name, place)
