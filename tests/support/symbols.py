"""Where a symbol is defined: finds functions, methods, classes and constants by their qualified names.

A symbol is written as in a traceback: `SegmentLog.flush`, `BATCHES_KEPT`, `outer.inner`. Where the name alone says too
little, its module goes before it: `kafka.fetch:handle`. The module may be shortened from the left (`fetch:handle`), so
that it survives a move from one package to another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

CANDIDATES_SHOWN = 6

_Named: TypeAlias = "tuple[str, Definition]"


class SymbolError(Exception):
    """A symbol that is not defined, or that may mean more than one definition."""


class Definition(NamedTuple):
    """The lines of one definition, decorators included: from `start` to before `end`, counted from 0."""

    start: int
    end: int


class Place(NamedTuple):
    """A symbol in its module. A property with a setter has two definitions."""

    module: str
    """Below the package, with dots."""
    name: str
    definitions: list[Definition]

    @property
    def symbol(self) -> str:
        return f"{self.module}:{self.name}"


class SourceTree:
    """The modules of a package, as they were when it was made."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self._paths = {_module_name(path.relative_to(package)): path for path in sorted(package.rglob("*.py"))}
        self._texts = {module: path.read_text() for module, path in self._paths.items()}
        self._places: dict[str, dict[str, Place]] = {}

    def path(self, module: str) -> Path:
        return self._paths[module]

    def text(self, module: str) -> str:
        return self._texts[module]

    def find(self, symbol: str) -> Place:
        """The one place that `symbol` means; otherwise the error lists those that might be meant."""
        module, _, name = symbol.rpartition(":")
        # Most modules do not even contain the words. To parse them all would take seconds.
        words = name.split(".")
        likely = [other for other, text in self._texts.items() if all(word in text for word in words)]
        everywhere = [places[name] for other in likely if name in (places := self._places_in(other))]
        found = [place for place in everywhere if _ends_with(place.module, module)]
        if len(found) == 1:
            return found[0]
        if found:
            exact = [place for place in found if place.module == module]
            if exact:
                return exact[0]
            raise SymbolError(f"{symbol!r} is ambiguous, name its module: {_listed(found)}")
        candidates = everywhere or self._places_like(name)
        raise SymbolError(f"{symbol!r} is not defined below {self.package.name}; there is {_listed(candidates)}")

    def _places_like(self, name: str) -> list[Place]:
        """Those with the same last word, then those that are spelled alike."""
        places = [place for module in self._texts for place in self._places_in(module).values()]
        last = name.rpartition(".")[2]
        close = get_close_matches(name, sorted({place.name for place in places}), CANDIDATES_SHOWN)
        alike = [place for word in close for place in places if place.name == word]
        return alike + [place for place in places if place.name.rpartition(".")[2] == last and place.name not in close]

    def _places_in(self, module: str) -> dict[str, Place]:
        places = self._places.get(module)
        if places is None:
            places = self._places[module] = {}
            for name, definition in _definitions(ast.parse(self._texts[module]).body, ""):
                places.setdefault(name, Place(module, name, [])).definitions.append(definition)
        return places


@cache
def source_tree(package: Path) -> SourceTree:
    """The modules of a package, read once in the life of this process."""
    return SourceTree(package)


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _ends_with(module: str, end: str) -> bool:
    return not end or module == end or module.endswith(f".{end}")


def _listed(places: list[Place]) -> str:
    if not places:
        return "nothing with a similar name"
    shown = ", ".join(place.symbol for place in places[:CANDIDATES_SHOWN])
    return f"{shown} and {len(places) - CANDIDATES_SHOWN} more" if len(places) > CANDIDATES_SHOWN else shown


def _definitions(statements: list[ast.stmt], prefix: str, *, is_local: bool = False) -> Iterator[_Named]:
    """The qualified name and the lines of what is defined here, and inside of that; not the variables of functions."""
    for statement in statements:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min(node.lineno for node in (statement, *statement.decorator_list))
            yield f"{prefix}{statement.name}", _lines(first, statement)
            is_function = not isinstance(statement, ast.ClassDef)
            yield from _definitions(statement.body, f"{prefix}{statement.name}.", is_local=is_function)
            continue
        for name in [] if is_local else _assigned(statement):
            yield f"{prefix}{name}", _lines(statement.lineno, statement)
        for block in _blocks(statement):
            yield from _definitions(block, prefix, is_local=is_local)


def _lines(first: int, statement: ast.stmt) -> Definition:
    assert statement.end_lineno is not None
    return Definition(first - 1, statement.end_lineno)


def _assigned(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return []
    names = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [name.id for name in names if isinstance(name, ast.Name)]


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statements inside an `if`, `try`, `with` or loop."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
