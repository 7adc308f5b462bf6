"""Planted bugs find their place by symbol and token, whatever else changes around it, or say why they do not."""

from __future__ import annotations

import importlib
import inspect
import io
import sys
import tokenize
from contextlib import suppress
from pathlib import Path

import pytest

from support import planted_bugs
from support.planted_bugs import (
    PACKAGE,
    CannotPlant,
    PlantedBug,
    chosen,
    patched_source,
    planted_in_copy,
    planted_on_import,
)

LOG = '''\
"""A log."""

LIMIT = 5


class Log:
    kind = "plain"

    def flush(self, offset: int) -> int:
        # It must be on disk first.
        self.sync(self.handle)
        if offset > self.end:
            self.end = offset
            return self.start
        return self.end

    def close(self) -> None:
        self.sync(self.handle)

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name


def outer() -> None:
    def inner() -> None:
        print("inner")

    inner()
'''


def package_of(directory: Path, modules: dict[str, str]) -> Path:
    """A package whose modules have these texts."""
    package = directory / "drmq"
    for name, text in modules.items():
        path = package / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def bug(symbol: str, right: str, wrong: str) -> PlantedBug:
    return PlantedBug("a bug", symbol, right, wrong)


def patched(directory: Path, planted: PlantedBug, text: str = LOG) -> str:
    """The source with the bug in it."""
    path, source = patched_source(planted, package_of(directory, {"storage.log": text}))
    assert path == Path("storage/log.py")
    return source


def test_fragment_is_replaced_inside_the_symbol_only(tmp_path: Path) -> None:
    """The same line is in `close` as well; that one stays."""
    source = patched(tmp_path, bug("Log.flush", "self.sync(self.handle)", "pass"))
    assert source == LOG.replace("self.sync(self.handle)", "pass", 1)
    source = patched(tmp_path / "2", bug("Log.close", "self.sync(self.handle)", "pass"))
    assert source.count("self.sync(self.handle)") == 1
    assert source.index("pass") > source.index("def close")


@pytest.mark.parametrize(
    ("symbol", "right", "wrong"),
    [
        ("LIMIT", "5", "1"),
        ("Log.kind", '"plain"', '"strange"'),
        ("outer.inner", '"inner"', '"outer"'),
        ("Log", "return self.start", "return self.end"),
        ("Log.name", "self._name = name", "pass"),
        ("storage.log:outer", "print", "repr"),
        ("log:outer", "print", "repr"),
    ],
)
def test_symbols(symbol: str, right: str, wrong: str, tmp_path: Path) -> None:
    """Constants, attributes, inner functions, classes, properties with their setters; with and without a module."""
    assert patched(tmp_path, bug(symbol, right, wrong)) == LOG.replace(right, wrong)


def test_moved_module(tmp_path: Path) -> None:
    """A symbol without a module is found wherever it is, and with the last part of it wherever that is."""
    package = package_of(tmp_path, {"broker.partitions.log": LOG, "broker.partitions.other": "class Other: ...\n"})
    for symbol in ("Log.flush", "log:Log.flush", "partitions.log:Log.flush"):
        path, source = patched_source(bug(symbol, "offset > self.end", "True"), package)
        assert path == Path("broker/partitions/log.py")
        assert "if True:" in source


def test_symbol_of_a_package(tmp_path: Path) -> None:
    path, _ = patched_source(bug("storage:LIMIT", "5", "1"), package_of(tmp_path, {"storage.__init__": LOG}))
    assert path == Path("storage/__init__.py")


def test_unknown_symbol(tmp_path: Path) -> None:
    """The error lists what may be meant: spelled alike, with the same last word, or in another module."""
    package = package_of(tmp_path, {"storage.log": LOG, "storage.ledger": "class Ledger:\n    def flush(self): ...\n"})
    with pytest.raises(CannotPlant, match=r"'Log\.flusch' is not defined below drmq; there is storage\.log:Log\.flush"):
        patched_source(bug("Log.flusch", "x", "y"), package)
    with pytest.raises(CannotPlant, match=r"storage\.ledger:Ledger\.flush"):
        patched_source(bug("SegmentLog.flush", "x", "y"), package)
    with pytest.raises(CannotPlant, match=r"'ledger:Log\.flush' is not defined .* storage\.log:Log\.flush"):
        patched_source(bug("ledger:Log.flush", "x", "y"), package)
    with pytest.raises(CannotPlant, match="nothing with a similar name"):
        patched_source(bug("qqqqqqqqqq", "x", "y"), package)


def test_variables_of_functions_are_no_symbols(tmp_path: Path) -> None:
    package = package_of(tmp_path, {"log": "def flush():\n    offset = 1\n    return offset\n"})
    with pytest.raises(CannotPlant, match="is not defined"):
        patched_source(bug("flush.offset", "1", "2"), package)


def test_ambiguous_symbol(tmp_path: Path) -> None:
    """Its module makes it clear."""
    handler = "def handle():\n    return 1\n"
    package = package_of(tmp_path, {"kafka.fetch": handler, "kafka.produce": handler, "wire.fetch": handler})
    with pytest.raises(CannotPlant, match=r"'handle' is ambiguous.* kafka\.fetch:handle, kafka\.produce:handle, wire"):
        patched_source(bug("handle", "1", "2"), package)
    with pytest.raises(CannotPlant, match=r"'fetch:handle' is ambiguous.*: kafka\.fetch:handle, wire\.fetch:handle$"):
        patched_source(bug("fetch:handle", "1", "2"), package)
    assert patched_source(bug("produce:handle", "1", "2"), package)[0] == Path("kafka/produce.py")
    assert patched_source(bug("wire.fetch:handle", "1", "2"), package)[0] == Path("wire/fetch.py")


def test_full_name_of_a_module_is_never_ambiguous(tmp_path: Path) -> None:
    package = package_of(tmp_path, {"log": "LIMIT = 1\n", "storage.log": "LIMIT = 1\n"})
    assert patched_source(bug("log:LIMIT", "1", "2"), package)[0] == Path("log.py")


def test_missing_fragment(tmp_path: Path) -> None:
    with pytest.raises(CannotPlant, match=r"'a bug': in storage\.log:Log\.close: the right fragment is not there"):
        patched(tmp_path, bug("Log.close", "return self.end", "pass"))


def test_fragment_that_is_there_twice(tmp_path: Path) -> None:
    with pytest.raises(CannotPlant, match="is there 2 times, not once: self"):
        patched(tmp_path, bug("Log", "self.sync(self.handle)", "pass"))


def test_part_of_a_token_is_no_match(tmp_path: Path) -> None:
    """`end` is not in `send`, and `=` is not in `==`."""
    text = "def check(sent):\n    return sent == 1\n"
    for right in ("sen", "=", "nt = 1"):
        with pytest.raises(CannotPlant, match="not there"):
            patched_source(bug("check", right, "x"), package_of(tmp_path, {"log": text}))


def test_empty_fragment(tmp_path: Path) -> None:
    with pytest.raises(CannotPlant, match="is empty"):
        patched(tmp_path, bug("Log.flush", "# only a comment", "pass"))


def test_fragment_that_is_no_python(tmp_path: Path) -> None:
    with pytest.raises(CannotPlant, match="no Python at"):
        patched(tmp_path, bug("Log.flush", 'print("begun', "pass"))


def test_bug_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(CannotPlant, match="does not compile"):
        patched(tmp_path, bug("Log.flush", "if offset > self.end:", "if offset >"))


def test_bug_that_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(CannotPlant, match="is the same"):
        patched(tmp_path, bug("Log.flush", "offset > self.end", "offset > self.end"))


REFORMATTED = """\
class Log:
  def flush(self, first, last):
      if first > last:
          # A comment that was not there.
          self.write(
              self.handle,  # another one
              first,
              last,
          )
          self.sync(self.handle); return first
      return last
"""
"""As somebody else might have written it."""


def test_reformatted_code_still_matches(tmp_path: Path) -> None:
    """Comments, line breaks, indentation and the comma before a bracket do not matter, on either side."""
    for number, right in enumerate(
        (
            "self.write(self.handle, first, last)\nself.sync(self.handle)",
            "            self.write(\n    self.handle, first,\n  last)   # why\n\n        self.sync(self.handle,)",
        )
    ):
        source = patched(tmp_path / str(number), bug("Log.flush", right, "pass"), REFORMATTED)
        assert source.splitlines()[2:6] == [
            "      if first > last:",
            "          # A comment that was not there.",
            "          pass; return first",
            "      return last",
        ]


def test_wrong_lines_are_indented_like_the_code(tmp_path: Path) -> None:
    """Also from the middle of a statement, and for lines that stand further left."""
    wrong = """
        if offset:
            self.end = 1
        else:

            self.end = 2
    """
    source = patched(tmp_path, bug("Log.flush", "self.end = offset", wrong))
    shown = "            if offset:\n                self.end = 1\n            else:\n\n                self.end = 2\n"
    assert source == LOG.replace("            self.end = offset\n", shown)
    source = patched(tmp_path / "2", bug("Log.flush", "= offset", "= 1\nself.start = 2"))
    assert source == LOG.replace("= offset\n", "= 1\n            self.start = 2\n")
    source = patched(tmp_path / "3", bug("Log.flush", "return self.start", "    return 1\nself.end = 2"))
    assert source == LOG.replace("return self.start\n", "return 1\n        self.end = 2\n")


def test_statement_that_is_wrapped_gives_the_indentation(tmp_path: Path) -> None:
    """Not the line inside its brackets, which may be indented in any way."""
    text = "def flush(log):\n    log.write(\n              1,\n              2,\n    )\n"
    _, source = patched_source(bug("flush", "2)", "3)\nlog.close()"), package_of(tmp_path, {"log": text}))
    assert source == "def flush(log):\n    log.write(\n              1,\n              3)\n    log.close()\n"


def test_statements_are_removed_with_their_lines(tmp_path: Path) -> None:
    source = patched(tmp_path, bug("Log.flush", "if offset > self.end: self.end = offset\nreturn self.start", ""))
    removed = "        if offset > self.end:\n            self.end = offset\n            return self.start\n"
    assert source == LOG.replace(removed, "")


def test_part_of_a_statement_is_removed(tmp_path: Path) -> None:
    text = "def check(a, b):\n    return a and b  # both\n"
    _, source = patched_source(bug("check", "and b", ""), package_of(tmp_path, {"log": text}))
    assert source == "def check(a, b):\n    return a   # both\n"


def tokens_of_python(text: str) -> list[str]:
    """Those that count, as Python sees them; an f-string is one token, as it was until Python 3.12."""
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    begins, ends = getattr(tokenize, "FSTRING_START", None), getattr(tokenize, "FSTRING_END", None)
    tokens: list[str] = []
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth += (token.type == begins) - (token.type == ends)
        if depth or token.type in blank:
            continue
        if token.string in ")]}" and tokens[-1] == ",":
            tokens.pop()
        tokens.append("f-string" if token.type == ends else any_f_string(token.string))
    return tokens


def any_f_string(text: str) -> str:
    is_one = text[-1] in "\"'" and "f" in text.partition(text[-1])[0].lower()
    return "f-string" if is_one else text


def test_tokens_are_those_of_python() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        assert [any_f_string(token.text) for token in planted_bugs._tokens(text)] == tokens_of_python(text), path


def test_planted_on_import() -> None:
    """The affected modules are loaded anew with the bug; afterwards the real ones are there, as if nothing had been."""
    quorum = importlib.import_module("drmq.raft.quorum")
    raft = importlib.import_module("drmq.raft")
    wrong = bug("majority_reached", "sorted(reached.get(voter, 0) for voter in voters)", "[7, 7, 7]")
    with planted_on_import(wrong, lambda name: name.startswith("drmq.raft")):
        other = importlib.import_module("drmq.raft.quorum")
        assert other is not quorum
        assert other.majority_reached({1, 2, 3}, {}) == 7
    assert sys.modules["drmq.raft.quorum"] is quorum
    assert quorum.majority_reached({1, 2, 3}, {}) == 0
    assert importlib.import_module("drmq").raft is raft
    with planted_on_import(None, lambda name: name.startswith("drmq.raft")):
        other = importlib.import_module("drmq.raft.quorum")
        assert other is not quorum
        assert other.majority_reached({1, 2, 3}, {}) == 0


def test_planted_on_import_where_nothing_is_imported() -> None:
    """A module with a bug that would not be loaded anew would leave the right one in place."""
    wrong = bug("majority_reached", "sorted(reached.get(voter, 0) for voter in voters)", "[7, 7, 7]")
    with (
        pytest.raises(CannotPlant, match=r"drmq\.raft\.quorum has the bug"),
        planted_on_import(wrong, lambda name: name.startswith("drmq.storage")),
    ):
        pass


def test_planted_on_import_in_a_package() -> None:
    """A package with a bug still finds its modules."""
    model = importlib.import_module("drmq.model")
    first, *others = model.__all__
    with planted_on_import(bug("model:__all__", f'"{first}",', ""), lambda name: name.startswith("drmq.model")):
        assert importlib.import_module("drmq.model").__all__ == others
        assert importlib.import_module("drmq.model.errors") is not None
    assert importlib.import_module("drmq.model") is model
    assert inspect.isfunction(model.value), "a function hides the module of its name, as before"


def test_planted_in_copy(tmp_path: Path) -> None:
    """The file has the bug inside, and is as it was afterwards, also if something fails there."""
    path = package_of(tmp_path / "src", {"log": LOG}) / "log.py"
    with suppress(KeyError), planted_in_copy(bug("LIMIT", "5", "1"), tmp_path):
        assert path.read_text() == LOG.replace("LIMIT = 5", "LIMIT = 1")
        raise KeyError
    assert path.read_text() == LOG


class OneBug:
    """A case of a suite."""

    def __init__(self, name: str) -> None:
        self.bug = PlantedBug(name, "LIMIT", "5", "1")
        self.seeds = 3


def test_bugs_are_chosen_by_words() -> None:
    cases = [OneBug("votes twice"), OneBug("syncs late")]
    assert chosen(cases, []) == cases
    assert chosen(cases, ["vote"]) == cases[:1]
    assert chosen(cases, ["late", "vote"]) == cases
    assert chosen(cases, ["never"]) == []


def test_seeds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug that is found too late, or not at all, or that cannot be planted, is missed."""

    def find(case: OneBug) -> tuple[int, str] | None:
        if case.bug.name == "stale":
            raise CannotPlant("why")
        return {"soon": (2, "lost"), "late": (3, "lost")}.get(case.bug.name)

    assert planted_bugs.try_seeds([OneBug("soon")], find) == 0
    for name, said in (("late", "LATE seed 3 of 3"), ("never", "NOT FOUND"), ("stale", "CANNOT BE PLANTED: why")):
        assert planted_bugs.try_seeds([OneBug("soon"), OneBug(name)], find) == 1
        assert said in capsys.readouterr().out


def test_bugs_are_tried_in_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each alone, after a run without any; what is not found or cannot be planted is missed."""
    package_of(tmp_path / "src", {"log": LOG})
    monkeypatch.setattr(planted_bugs, "ROOT", tmp_path)

    def run(project: Path, what: str, attempt: int) -> tuple[bool, str]:
        text = (project / "src/drmq/log.py").read_text()
        assert project != tmp_path
        return (text == LOG or attempt < 2) and what != "broken", f"{what} {attempt}"

    seen = bug("LIMIT", "5", "1")
    assert planted_bugs.try_in_copy([(seen, "tests")], ["src"], run, 2) == 0
    assert "found   a bug (2 tried" in capsys.readouterr().out
    assert planted_bugs.try_in_copy([(seen, "tests")], ["src"], run, 1) == 1
    assert "MISSED  a bug" in capsys.readouterr().out
    assert planted_bugs.try_in_copy([(bug("LIMIT", "6", "1"), "tests"), (seen, "tests")], ["src"], run, 2) == 1
    assert "STALE   'a bug': in log:LIMIT" in capsys.readouterr().out
    assert planted_bugs.try_in_copy([(seen, "broken")], ["src"], run, 2) == 2
    assert "broken fails without any bug: broken 1" in capsys.readouterr().out
    assert (tmp_path / "src/drmq/log.py").read_text() == LOG
