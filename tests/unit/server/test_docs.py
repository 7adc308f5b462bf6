"""The reference pages are complete, and `python -m drmq.server.docs` has been run."""

from pathlib import Path

import pytest

from drmq.server.docs import PAGES, all_commands, updated

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
MEND = "run `.venv/bin/python -m drmq.server.docs`"


def test_every_setting_is_in_the_manual() -> None:
    """The page is what the definitions make: names, defaults, bounds and meanings."""
    text = (REFERENCE / "configuration.md").read_text()
    assert updated("configuration.md", text) == text, MEND


def test_every_group_setting_is_in_the_manual() -> None:
    """The page is what the definitions make, for groups and for the cluster."""
    text = (REFERENCE / "group-settings.md").read_text()
    assert updated("group-settings.md", text) == text, MEND


@pytest.mark.parametrize("page", ["counters.md", "metrics.md"])
def test_every_counter_and_metric_is_in_the_manual(page: str) -> None:
    """Names, units, labels and meanings are those of the code."""
    text = (REFERENCE / page).read_text()
    assert updated(page, text) == text, MEND


def test_every_command_and_option_is_in_the_manual() -> None:
    """Each command has a section with each of its options; settings have their own page."""
    text = (REFERENCE / "command-line.md").read_text()
    sections = {part.partition("\n")[0].strip("# "): part for part in text.split("\n##")}
    for path, command in all_commands():
        section = sections.get(" ".join(("drmq", *path)))
        assert section is not None, f"{path}: {MEND}"
        for parameter in command.params:
            if hasattr(parameter, "setting") and parameter.setting.table != "server":
                continue
            if getattr(parameter, "hidden", False):
                continue
            for name in parameter.opts if parameter.param_type_name == "option" else []:
                assert name in section, f"{path} {name}: {MEND}"


@pytest.mark.parametrize("page", list(PAGES))
def test_page_without_marks_is_refused(page: str) -> None:
    """A page is never overwritten as a whole."""
    with pytest.raises(ValueError, match="no section"):
        updated(page, "# A page of someone else\n")
