"""House rules that no linter knows: docstrings, clean locks, no traces of a machine, modules of a readable length."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from drmq.wire import APIS
from support import rerun
from support.planted_bugs import CannotPlant, patched_source

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "drmq"
FOLDERS = ("src", "tests", "bench", "demo", "fuzz", "chaos")
GENERATED = ("_pb2.py", "_pb2_grpc.py")
"""The ends of the names of files that a build makes."""
MODULES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not path.name.endswith(GENERATED)
)
LINES_MAX = 700
"""Beyond this a module has swallowed its neighbours. A comfortable one has up to 400 lines."""
SHOWN_COUNT = 10
SUITES = [path for path in MODULES if path.name == "planted_bugs.py" and path.parent.name != "support"]

ONLY_EXPORTS = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr, ast.If)
"""A module of nothing but these has no annotations, or hardly any."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_has_a_docstring() -> None:
    """A reader learns from the first lines what a module is for. Empty files need none."""
    silent = [name_of(path) for path in MODULES if path.stat().st_size and not _docstring(path)]
    assert not silent


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text()))


def test_every_package_has_an_essay() -> None:
    """Each package of the source opens with more than a sentence."""
    short = [name_of(path) for path in SOURCE.glob("*/__init__.py") if len(_docstring(path) or "") < 150]
    assert not short


def test_annotations_are_never_evaluated() -> None:
    """Modules with code in them begin with `from __future__ import annotations`, so that types cost nothing."""
    without = []
    for path in MODULES:
        if not path.is_relative_to(SOURCE):
            continue
        tree = ast.parse(path.read_text())
        if not all(isinstance(statement, ONLY_EXPORTS) for statement in tree.body) and not _is_lazy(tree):
            without.append(name_of(path))
    assert not without


def _is_lazy(tree: ast.Module) -> bool:
    return any(isinstance(statement, ast.ImportFrom) and statement.module == "__future__" for statement in tree.body)


def test_lock_files_have_no_addresses() -> None:
    """A lock says which versions, never from where: it must work with any index, and tell nothing of ours."""
    assert not (ROOT / "uv.lock").exists()
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    assert locks
    for lock in locks:
        assert "://" not in lock.read_text(), name_of(lock)
    # npm's lock has the addresses of its sponsors, but none to download from.
    for folder in ("dashboard", "tests/grpc_node"):
        assert "resolved" not in (ROOT / folder / "package-lock.json").read_text()


def test_no_paths_of_a_machine() -> None:
    """Nothing in the repository depends on where somebody had it."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"not a git repository, or no git: {error}")
    traces = tuple(f"/{folder}/" for folder in ("work", "root"))
    found = []
    for name in listed.splitlines():
        path = ROOT / name
        if path.is_file():
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{name}: {trace}" for trace in traces if trace in text]
    assert not found


def test_modules_are_of_a_readable_length() -> None:
    """Prints the longest modules, and fails where one has clearly become two."""
    lengths = sorted(((len(path.read_text().splitlines()), name_of(path)) for path in MODULES), reverse=True)
    for count, name in lengths[:SHOWN_COUNT]:
        print(f"{count:5d}  {name}")
    assert lengths[0][0] <= LINES_MAX, lengths[0]


@pytest.mark.parametrize("name", sorted(api.key.name.lower() for api in APIS.values()))
def test_every_api_has_its_module(name: str) -> None:
    """The handler of an API is `handle` in the module of its name; so a reader finds it, and the dispatcher does."""
    module = importlib.import_module(f"drmq.kafka.{name}")
    assert inspect.isfunction(module.handle)
    assert importlib.import_module(f"drmq.wire.messages.{name}").__doc__


def test_unit_tests_mirror_the_packages() -> None:
    """The tests of a package are in the folder of its name."""
    folders = [path for path in (ROOT / "tests" / "unit").rglob("*") if path.is_dir() and path.name != "__pycache__"]
    strangers = []
    for folder in folders:
        relative = folder.relative_to(ROOT / "tests" / "unit")
        # `tests/support` is ours as well, and what is in it may need tests. A second suite of planted bugs for a
        # package has a folder of its own.
        is_other = relative.parts[0] == "support" or (folder / "planted_bugs.py").exists()
        if not is_other and not (SOURCE / relative).is_dir():
            strangers.append(name_of(folder))
    assert not strangers


NODES = re.compile(
    r"^from support\.(processes|cluster|http_cluster|small_disk) import"
    r"|^from drmq\.testing import .*\b(Broker|Cluster|cluster)\b"
    r"|subprocess\.Popen",
    re.MULTILINE,
)
"""What a test begins with that starts nodes, or processes that it must end."""


def test_tests_that_start_nodes_are_where_they_may_be_run_again() -> None:
    """`make test` takes all others for deterministic, and `make flaky` does not try them."""
    tests = [path for path in MODULES if path.name.startswith("test_")]
    outside = [path for path in tests if not name_of(path).startswith(rerun.PLACES)]
    found = [name_of(path) for path in outside if NODES.search(path.read_text())]
    assert not found
    assert all((ROOT / place).exists() for place in rerun.PLACES)


def test_every_suite_of_planted_bugs_is_checked() -> None:
    """The next test finds them by the names of their files."""
    assert [name_of(path) for path in SUITES] == [
        "chaos/planted_bugs.py",
        "tests/e2e/planted_bugs.py",
        "tests/unit/broker/services/redrive/planted_bugs.py",
        "tests/unit/client/planted_bugs.py",
        "tests/unit/leases/planted_bugs.py",
        "tests/unit/planted_bugs.py",
        "tests/unit/raft/planted_bugs.py",
        "tests/unit/storage/planted_bugs.py",
        "tests/unit/testing/lease_simulation/planted_bugs.py",
        "tests/unit/testing/simulation/planted_bugs.py",
    ]


@pytest.mark.parametrize("path", SUITES, ids=name_of)
def test_planted_bugs_fit_the_source(path: Path) -> None:
    """Most of them are not tried with every run. One that no longer finds its place would plant nothing."""
    bugs = [case.bug for case in _load(path).BUGS]
    assert len({bug.name for bug in bugs}) == len(bugs) > 0
    misfits = []
    right = cache(_syntax)
    for bug in bugs:
        try:
            module, patched = patched_source(bug)
        except CannotPlant as error:
            misfits.append(str(error))
            continue
        assert _syntax(patched) != right((SOURCE / module).read_text()), bug.name
    assert not misfits, "\n".join(misfits)


def _syntax(source: str) -> str:
    return ast.dump(ast.parse(source))


def _load(path: Path) -> ModuleType:
    name = f"suite_{path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    # Dataclasses look for their module there.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
