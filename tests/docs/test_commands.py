"""Every command that the documentation shows is one that the command line knows."""

import pytest
import typer.main

from dkvb.cli import app
from tests.docs.blocks import PAGES, commands, name_of, python_blocks

SHOWN = [(name_of(page), line) for page in PAGES for line in commands(page)]


def parse(arguments):
    """Parse a command without running it; an unknown command, option or value is an error."""
    group = typer.main.get_command(app)
    context = group.make_context("dkvb", list(arguments[:1]))
    command = group
    while hasattr(command, "commands"):
        name, command, arguments = command.resolve_command(context, list(arguments))
        if not hasattr(command, "commands"):
            return command.make_context(name, list(arguments), parent=context)
    raise AssertionError("no command")


def test_commands_are_found():
    assert len(SHOWN) > 60
    assert len({page for page, _ in SHOWN}) > 8


@pytest.mark.parametrize(
    ("page", "line"),
    SHOWN,
    ids=lambda value: "" if isinstance(value, str) else " ".join(value)[:60],
)
def test_the_command_is_known(page, line):
    assert parse(line).params


def test_an_unknown_option_is_an_error():
    with pytest.raises(Exception, match="--lable"):
        parse(["forget", "model", "--lable", "cat"])


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=name_of)
def test_python_compiles(page):
    for block in python_blocks(page):
        compile(block, str(page), "exec")
