"""The screen and the keys of `drmq top`."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from drmq.server.top import text
from drmq.server.top.observer import Observer, Snapshot

_STYLES = {"healthy": "bold green", "degraded": "bold yellow", "down": "bold red"}
_HELP = """drmq top: a cluster, live

  space   pause, and go on
  s       sort the brokers by id, CPU, memory or leaders
  g       sort the groups by lag, age, dead letters or name
  ?       this help
  q       quit

● healthy   ▲ degraded   ■ down
Rates and latencies are those of the last interval on all nodes;
a latency is rounded up to a power of two. OLDEST is the age of the
oldest record that a group has not done. CPU is that of one core,
DISK how much of the node's disk is used.

For scripts: drmq status, drmq group lag, drmq debug counters
"""


class Help(ModalScreen[None]):
    """What the keys do and the columns mean. Any key closes it."""

    def compose(self) -> ComposeResult:
        yield Static(_HELP, markup=False)

    def on_key(self, event: Any) -> None:
        event.stop()
        self.dismiss(None)


class Observed(Message):
    """A new snapshot has come from the thread that asks the nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class Top(App[None]):
    """The program. `every_s` is the time between two snapshots."""

    TITLE = "drmq top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("space", "pause", "Pause"),
        Binding("s", "sort_brokers", "Sort brokers"),
        Binding("g", "sort_groups", "Sort groups"),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]
    CSS = """
    Screen { layout: vertical; }
    #status { height: auto; max-height: 3; padding: 0 0 1 0; }
    #rates { height: 4; }
    #rates, #brokers, #groups, #events { text-wrap: nowrap; text-overflow: ellipsis; }
    VerticalScroll { height: auto; margin: 1 0 0 0; scrollbar-size-vertical: 1; }
    #brokers-box { max-height: 35%; }
    #groups-box { max-height: 30%; }
    #events-box { height: 1fr; min-height: 3; }
    Help { align: center middle; }
    Help Static { width: 74; height: auto; border: solid $foreground; padding: 1 2; }
    """

    def __init__(self, observer: Observer, every_s: float) -> None:
        super().__init__()
        self._observer = observer
        self._every_s = every_s
        self._is_ending = threading.Event()
        self._is_paused = False
        self._shown: Snapshot | None = None
        self._last_good: Snapshot | None = None
        self._broker_order = next(iter(text.BROKER_ORDERS))
        self._group_order = next(iter(text.GROUP_ORDERS))

    def compose(self) -> ComposeResult:
        yield Static("Connecting ...", id="status", markup=False)
        yield Static("", id="rates", markup=False)
        for name in ("brokers", "groups", "events"):
            with VerticalScroll(id=f"{name}-box", can_focus=False):
                yield Static("", id=name, markup=False)
        yield Footer()

    def on_mount(self) -> None:
        # A daemon, so that a node that does not answer cannot delay the end of the program.
        threading.Thread(target=self._observe, name="observer", daemon=True).start()
        self.set_interval(1.0, self._refresh_status)

    def on_unmount(self) -> None:
        self._is_ending.set()

    def on_resize(self) -> None:
        self._draw()

    def _observe(self) -> None:
        while not self._is_ending.is_set():
            began = time.monotonic()
            snapshot = self._observer.look()
            if self._is_ending.is_set() or not self.post_message(Observed(snapshot)):
                break
            self._is_ending.wait(max(0.1, began + self._every_s - time.monotonic()))
        self._observer.close()

    def on_observed(self, message: Observed) -> None:
        if self._is_paused:
            return
        self._shown = message.snapshot
        if message.snapshot.brokers:
            self._last_good = message.snapshot
        self._draw()

    # ---- keys -----------------------------------------------------------------------------------

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._refresh_status()

    def action_sort_brokers(self) -> None:
        self._broker_order = _next(list(text.BROKER_ORDERS), self._broker_order)
        self._draw()

    def action_sort_groups(self) -> None:
        self._group_order = _next(list(text.GROUP_ORDERS), self._group_order)
        self._draw()

    def action_help(self) -> None:
        self.push_screen(Help())

    # ---- drawing --------------------------------------------------------------------------------

    def _refresh_status(self) -> None:
        # A snapshot may come when the program ends, and its screen is being taken apart.
        if self._shown is None or not self.query("#status"):
            return
        paused = "PAUSED (space goes on)  " if self._is_paused else ""
        line = Text(paused, "bold reverse")
        line.append(
            text.status_line(self._shown, self._last_good, time.time()), "not reverse " + _STYLES[self._shown.status]
        )
        self._static("status").update(line)

    def _draw(self) -> None:
        self._refresh_status()
        # When no node answers, the last numbers stay: the status says how old they are.
        found = self._last_good
        if found is None or not self.query("#events"):
            return
        width = self.size.width - 2
        self._put("rates", text.rate_lines(found, width), has_heading=False)
        self._put("brokers", text.broker_lines(found.brokers, self._broker_order, width))
        self._put("groups", text.group_lines(found.groups, self._group_order, found.at_s, width))
        self._put("events", text.event_lines(found))

    def _put(self, name: str, lines: list[str], *, has_heading: bool = True) -> None:
        style = "dim" if self._shown is not self._last_good else ""
        shown = Text("\n".join(lines), style)
        if has_heading:
            shown.stylize("bold", 0, len(lines[0]))
        self._static(name).update(shown)

    def _static(self, name: str) -> Static:
        return self.query_one(f"#{name}", Static)


def _next(names: list[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]
