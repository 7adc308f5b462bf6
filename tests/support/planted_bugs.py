"""Planted bugs: a wrong fragment in place of a right one, to show that tests which pass would also fail.

A `PlantedBug` names the *symbol* that it spoils, a function, method, class or constant, by its qualified name
(`support.symbols`). It is found wherever it is defined below `src/drmq`, so a bug survives that its module is moved or
renamed. Inside the symbol, and nowhere else, `right` is looked for token by token: comments, line breaks and
indentation do not matter, nor does the comma before a closing bracket. It must be there exactly once.

`wrong` takes its place: its first line stands where the statement stands in which `right` begins, and its further
lines as far to the right or left of that as they are written:

    PlantedBug(
        "does not sync term and vote",
        symbol="Ledger._append",
        right="self._files.sync(self._file.handle)",
        wrong="pass",
    )

There are two ways to plant one: `planted_on_import` for tests that run in this process, `planted_in_copy` for tests
that are started on a copy of the project. Each suite is a file called `planted_bugs.py` with a list `BUGS`, which says
for each bug the tests, seeds or scenario that must find it. `tests/test_tidy.py` makes the patched source of every bug
of every suite, and fails if one no longer fits.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

from support.symbols import Definition, SymbolError, source_tree

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "drmq"


@dataclass(frozen=True)
class PlantedBug:
    """A wrong fragment in place of a right one, inside one symbol."""

    name: str
    symbol: str
    """`SegmentLog.flush`, or with its module where several have one of that name: `journal:replay`."""
    right: str
    wrong: str


class CannotPlant(Exception):
    """A planted bug that does not fit the source, and why. Adapt it."""


class Case(Protocol):
    """What a suite knows of one planted bug, besides the bug itself."""

    @property
    def bug(self) -> PlantedBug: ...


class SeededCase(Case, Protocol):
    """One that is found by a simulation from a seed."""

    @property
    def seeds(self) -> int:
        """So many, from 0, must be enough to see it."""
        ...


@dataclass(frozen=True)
class TestedBug:
    """A planted bug, and the tests that must notice it, as pytest's command line has them."""

    __test__ = False
    bug: PlantedBug
    tests: str


CaseT = TypeVar("CaseT", bound=Case)
SeededT = TypeVar("SeededT", bound=SeededCase)


def chosen(cases: Sequence[CaseT], words: Sequence[str]) -> list[CaseT]:
    """Those whose names contain one of the words; without words, all."""
    return [case for case in cases if not words or any(word in case.bug.name for word in words)]


# The patch


class _Token(NamedTuple):
    text: str
    start: int
    end: int
    statement: int
    """Where the statement begins that the token belongs to; of compound statements, their heads and each in them."""


# Not the module `tokenize`: a fragment may end inside a pair of brackets, which that refuses since Python 3.12.
_TOKEN = re.compile(
    r"""
      (?P<blank> \s+ | \\\n | \#[^\n]* )
    | (?i: [rbuf] | br | rb | fr | rf )?
      (?: \"{3} (?: \\. | [^\\] )*? \"{3} | '{3} (?: \\. | [^\\] )*? '{3}
        | " (?: \\. | [^"\\\n] )* " | ' (?: \\. | [^'\\\n] )* ' )
    | (?: \d [\d_]* \.? [\d_]* | \. \d [\d_]* ) (?: [eE] [-+]? \d+ )? \w*
    | \w+
    | -> | \.{3} | (?: \*\* | // | >> | << | [-+*/%@&|^<>=:] ) =? | != | [~.,;(){}\[\]]
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=32)  # a suite has many bugs in the same module
def _tokens(text: str) -> list[_Token]:
    """The tokens that count: no comments, no line breaks, no indentation, no comma before a closing bracket."""
    tokens: list[_Token] = []
    position = depth = statement = 0
    is_new_line = True
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CannotPlant(f"no Python at {text[position : position + 40]!r}")
        token = match.group()
        if match["blank"] is not None:
            is_new_line |= "\n" in token and not token.startswith("\\") and depth <= 0
        else:
            if is_new_line:
                statement, is_new_line = position, False
            if token in (")", "]", "}") and tokens and tokens[-1].text == ",":
                tokens.pop()
            depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
            tokens.append(_Token(token, position, match.end(), statement))
        position = match.end()
    return tokens


def patched_source(bug: PlantedBug, package: Path = PACKAGE) -> tuple[Path, str]:
    """The file that the bug spoils, relative to `package`, and its text with the bug in it."""
    tree = source_tree(package)
    try:
        place = tree.find(bug.symbol)
    except SymbolError as error:
        raise CannotPlant(f"{bug.name!r}: {error}") from error
    source = tree.text(place.module)
    try:
        patched = _patched(source, place.definitions, bug.right, bug.wrong)
        compile(patched, str(tree.path(place.module)), "exec", dont_inherit=True)
    except CannotPlant as error:
        raise CannotPlant(f"{bug.name!r}: in {place.symbol}: {error}") from error
    except SyntaxError as error:
        raise CannotPlant(f"{bug.name!r}: {place.symbol} with the bug does not compile: {error}") from error
    if patched == source:
        raise CannotPlant(f"{bug.name!r}: {place.symbol} is the same with the bug")
    return tree.path(place.module).relative_to(package), patched


def _patched(source: str, definitions: list[Definition], right: str, wrong: str) -> str:
    wanted = [token.text for token in _tokens(right)]
    if not wanted:
        raise CannotPlant("the right fragment is empty")
    tokens = _tokens(source)
    texts = [token.text for token in tokens]
    starts = [0]
    starts += [match.end() for match in re.finditer("\n", source)]
    bounds = [(starts[start], starts[end] if end < len(starts) else len(source)) for start, end in definitions]
    found = [
        at
        for at in range(len(tokens) - len(wanted) + 1)
        if texts[at : at + len(wanted)] == wanted
        and any(start <= tokens[at].start and tokens[at + len(wanted) - 1].end <= end for start, end in bounds)
    ]
    if len(found) != 1:
        count = f"there {len(found)} times, not once" if found else "not there"
        raise CannotPlant(f"the right fragment is {count}: {' '.join(wanted)}")
    first, last = tokens[found[0]], tokens[found[0] + len(wanted) - 1]
    after = tokens[found[0] + len(wanted)] if found[0] + len(wanted) < len(tokens) else None
    return _replaced(source, first, last, after, wrong)


def _replaced(source: str, first: _Token, last: _Token, after: _Token | None, wrong: str) -> str:
    """The source with `wrong` from the first token to the last, indented as the statement where that begins."""
    line = source.rfind("\n", 0, first.statement) + 1
    if not wrong.strip():
        if first.start > first.statement or (after is not None and after.statement == last.statement):
            return source[: first.start] + source[last.end :]
        return source[:line] + source[last.end :].partition("\n")[2]
    lines = wrong.strip("\n").rstrip().split("\n")
    shift = first.statement - line - _indentation(lines[0])
    indented = [" " * (_indentation(text) + shift) + text.lstrip() if text.strip() else "" for text in lines[1:]]
    return source[: first.start] + "\n".join([lines[0].lstrip(), *indented]) + source[last.end :]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# Planting in this process


class _PatchFinder(MetaPathFinder, Loader):
    """Finds the one module that is changed."""

    def __init__(self, bug: PlantedBug) -> None:
        self._path, self._source = patched_source(bug)
        self._is_package = self._path.name == "__init__.py"
        parts = self._path.parent.parts if self._is_package else self._path.with_suffix("").parts
        self.name = ".".join(("drmq", *parts))

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        folders = [str((PACKAGE / self._path).parent)] if self._is_package else None
        return importlib.util.spec_from_file_location(
            fullname, PACKAGE / self._path, loader=self, submodule_search_locations=folders
        )

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"<{module.__name__} with a bug>", "exec", dont_inherit=True), module.__dict__)


@contextmanager
def planted_on_import(bug: PlantedBug | None, is_affected: Callable[[str], bool]) -> Iterator[None]:
    """Inside, the affected modules are imported anew, with the bug in them; outside, the real ones are untouched.

    `is_affected` gets the names of modules. It must choose the one with the bug and all that hold parts of it.
    """
    finder = _PatchFinder(bug) if bug is not None else None
    if finder is not None and not is_affected(finder.name):
        raise CannotPlant(f"{finder.name} has the bug, but is not imported anew")
    real = {name: module for name, module in sys.modules.items() if is_affected(name)}
    attributes = [
        (sys.modules[parent], child, getattr(sys.modules[parent], child))
        for parent, _, child in (name.rpartition(".") for name in real)
        if parent in sys.modules and hasattr(sys.modules[parent], child)
    ]
    for name in real:
        del sys.modules[name]
    if finder is not None:
        sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        if finder is not None:
            sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if is_affected(name)]:
            del sys.modules[name]
        sys.modules.update(real)
        # Not always the module: `drmq.model.value` is a function that hides the module of its name.
        for package, child, attribute in attributes:
            setattr(package, child, attribute)


def try_seeds(cases: Sequence[SeededT], find: Callable[[SeededT], tuple[int, str] | None]) -> int:
    """Say for each bug at which seed `find` finds it, and how; the exit code tells if any needs too many seeds."""
    missed = 0
    for case in cases:
        started = time.process_time()
        try:
            seed, how = find(case) or (-1, "NOT FOUND")
        except CannotPlant as error:
            seed, how = -1, f"CANNOT BE PLANTED: {error}"
        is_late = not 0 <= seed < case.seeds
        missed += is_late
        seconds = time.process_time() - started
        late = "LATE " if is_late else ""
        print(f"{late}seed {seed} of {case.seeds}, {seconds:.1f} s: {case.bug.name}: {how[:160]}", flush=True)
    return int(missed > 0)


# Planting in a copy of the project


@contextmanager
def planted_in_copy(bug: PlantedBug, project: Path) -> Iterator[None]:
    """Inside, the copy of the project has the bug; afterwards it is right again."""
    package = project / "src" / "drmq"
    relative, patched = patched_source(bug, package)
    path = package / relative
    source = path.read_text()
    path.write_text(patched)
    try:
        yield
    finally:
        path.write_text(source)


def try_in_copy(
    tried: Sequence[tuple[PlantedBug, str]],
    parts: Sequence[str],
    run: Callable[[Path, str, int], tuple[bool, str]],
    attempts: int = 1,
) -> int:
    """Say for each bug whether it is found in a copy of parts of the project; the exit code tells if any is missed.

    With each bug comes what must find it: tests, or a scenario. `run` runs that in the copy, for the nth time, and
    returns whether it passes, and what failed first. At the beginning all is run without a bug. That must pass, or a
    failure would say nothing.
    """
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory)
        _copy(parts, project)
        for what in sorted({what for _, what in tried}):
            passed, failure = run(project, what, 1)
            if not passed:
                print(f"{what} fails without any bug: {failure}")
                return 2
        found = sum(_is_found(project, bug, what, run, attempts) for bug, what in tried)
    print(f"{found} of {len(tried)} found")
    return int(found < len(tried))


def _copy(parts: Sequence[str], project: Path) -> None:
    for part in parts:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, project / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, project / part)


def _is_found(
    project: Path, bug: PlantedBug, what: str, run: Callable[[Path, str, int], tuple[bool, str]], attempts: int
) -> bool:
    started = time.monotonic()
    passed, failure, attempt = True, "", 0
    try:
        with planted_in_copy(bug, project):
            while passed and attempt < attempts:
                attempt += 1
                passed, failure = run(project, what, attempt)
    except CannotPlant as error:
        print(f"STALE   {error}", flush=True)
        return False
    verdict, how = ("MISSED ", "") if passed else ("found  ", f": {failure}")
    tries = f"{attempt} tried, " if attempts > 1 else ""
    print(f"{verdict} {bug.name} ({tries}{time.monotonic() - started:.1f} s){how}", flush=True)
    return not passed


def try_tests(cases: Sequence[TestedBug]) -> int:
    """Try bugs with their tests in a copy of the project; the exit code tells if any is missed."""
    tried = [(case.bug, case.tests) for case in cases]
    return try_in_copy(tried, ("src", "tests", "docs", "README.md", "pyproject.toml"), _run_tests)


def _run_tests(project: Path, tests: str, attempt: int) -> tuple[bool, str]:
    """Whether all tests pass, and the first that does not."""
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120", *tests.split()],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{project}/src:{project}/tests", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [
        line.partition("::")[2] for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR tests"))
    ]
    return result.returncode == 0, failed[0].partition(" - ")[0] if failed else result.stdout[-300:]
