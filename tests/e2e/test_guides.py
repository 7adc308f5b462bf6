"""The README and the guides, typed in as they stand: each command works, and prints what the page says.

Each page has a directory, a shell and a network of its own, so that its ports are free and its names are new. Blocks
that cannot be run say why in a comment before them (`support.guides`); the examples of Spark are run by
`tests/spark/test_guide.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from support import own_network
from support.guides import NOT_RUN, Block, CommandFailed, Terminal, difference, missing_tools, read_blocks, run_block

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/guide").glob("*.md")))]
PORTS = (8080, 8090, 9092, 9093, 9094, 9095, 9192, 9193, 9194, 9644)


@cache
def blocks_of(page: str) -> list[Block]:
    return list(read_blocks(page, (ROOT / page).read_text()))


RUN = [page for page in PAGES if any(NOT_RUN not in block.options for block in blocks_of(page))]


@contextlib.contextmanager
def free_ports() -> Iterator[bool]:
    """Make the ports of the pages free: in a network of its own (True), or one page after the other in this one."""
    if own_network.is_available():
        yield True
        return
    with (Path(tempfile.gettempdir()) / "drmq-guides.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for port in PORTS:
            with socket.socket() as found:
                if found.connect_ex(("127.0.0.1", port)) == 0:
                    pytest.skip(f"port {port} is in use, and this machine allows no network of its own")
        yield False


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUN)
def test_what_the_page_says(page: str, tmp_path: Path) -> None:
    """Every block, in order, does what it says."""
    blocks = blocks_of(page)
    if missing_tools(blocks):
        pytest.skip(f"not installed: {missing_tools(blocks)}")
    with free_ports() as own_ports:
        terminal = Terminal(tmp_path, own_ports=own_ports)
        try:
            for block in blocks:
                if NOT_RUN not in block.options:
                    run_block(terminal, block)
        finally:
            terminal.close()


def test_what_is_not_run_says_why() -> None:
    """Prints the list: it should be short, and each reason good."""
    for page in PAGES:
        for block in blocks_of(page):
            if NOT_RUN in block.options:
                print(f"{block}: {block.options[NOT_RUN]}")
                assert len(block.options[NOT_RUN]) > 10, block


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    """A command that fails, another output, a program that raises, a command that ends instead of serving."""
    right = "```console\n$ echo one; echo 'Node 1 (pid 5)'\none\nNode 1 (pid 77)\n```\n"
    wrong = {
        "```sh\ntrue\nfalse\n```\n": "`false` ended with 1",
        "```console\n$ echo one\ntwo\n```\n": "-two\n+one",
        "```console\n$ echo one\n```\n": "-\n+one",
        "```python\nraise SystemExit(3)\n```\n": "ended with 3",
        "```python\ndef test_it():\n    assert 1 == 2\n```\n": "assert 1 == 2",
        "<!-- first: false -->\n```sh\ntrue\n```\n": "`false` ended with 1",
    }
    terminal = Terminal(tmp_path, own_ports=False)
    try:
        for block in read_blocks("right.md", right):
            run_block(terminal, block)
        for text, words in wrong.items():
            [block] = read_blocks("wrong.md", text)
            with pytest.raises(CommandFailed) as failed:
                run_block(terminal, block)
            assert words in str(failed.value), text
    finally:
        terminal.close()


def test_outputs_are_compared_but_for_what_varies() -> None:
    assert not difference(["Node 1 (pid 5) stopped."], "Node 1 (pid 123) stopped.\n")
    assert difference(["Node 1 (pid 5) stopped."], "Node 2 (pid 5) stopped.\n")
    assert not difference(["a", "...", "z"], "a\nb\nc\nz\n")
    assert difference(["a", "...", "z"], "a\nb\n")
    assert not difference(["b", "a"], "a\nb\n", any_order=True)
    assert difference(["b", "a"], "a\nb\n")
    assert not difference(["took 1.5 s; hash 5fd50ae3611b0f98"], "took 22 s; hash 0000000000000000")


def test_a_comment_that_means_nothing_is_an_error() -> None:
    """A marker with a typing error would hide that a block is not run, or not run as it was meant."""
    for text in ("<!-- not ran: x -->\n```sh\ntrue\n```\n", "<!-- not run: x -->\n\n```sh\ntrue\n```\n"):
        with pytest.raises(ValueError, match=r"wrong\.md"):
            list(read_blocks("wrong.md", text))
