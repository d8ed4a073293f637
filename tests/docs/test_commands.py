"""Every command that the documentation shows is one that the command line knows."""

from functools import cache

import pytest
import typer.main

from dkvb.cli import app
from tests.docs.blocks import PAGES, commands, name_of, python_blocks


@cache
def command_line():
    return typer.main.get_command(app)


def parse(arguments):
    """Parse a command without running it; an unknown command, option or value is an error."""
    command = command_line()
    context = command.make_context("dkvb", list(arguments[:1]))
    while hasattr(command, "commands"):
        name, command, arguments = command.resolve_command(context, list(arguments))
    return command.make_context(name, list(arguments), parent=context)


def test_commands_are_found():
    assert sum(len(commands(page)) for page in PAGES) > 40


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_the_commands_are_known(page):
    for arguments in commands(page):
        assert parse(arguments).params


def test_an_unknown_option_is_an_error():
    with pytest.raises(Exception, match="--lable"):
        parse(["forget", "model", "--lable", "cat"])


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
def test_python_compiles(page):
    for block in python_blocks(page):
        compile(block, str(page), "exec")
