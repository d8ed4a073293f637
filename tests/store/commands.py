"""The command line, as tests call it."""

from typer.testing import CliRunner

from dkvb.cli import app


def dkvb(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    done = dkvb(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout
