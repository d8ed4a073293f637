"""The program behind `make torture` says what was tried, and fails when a part does."""

from pathlib import Path

from .store.faults import NAMES
from .torture import Part, parts, torture

GOOD = Part(1, "good", ("-c", 'print(\'{"files": 7, "seconds": 1.5}\')'))
BAD = Part(2, "bad", ("-c", "import sys; print('lost a row'); sys.exit(3)"))


def test_a_line_per_part_and_a_total(capsys):
    assert torture([GOOD], 2)
    line, total = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["good", "ok"]
    assert line.endswith("files 7")
    assert total.startswith("1 parts in ")
    assert total.endswith("failed: none")


def test_a_part_that_fails_is_shown_with_what_repeats_it(capsys):
    assert not torture([GOOD, BAD], 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["bad", "FAILED"]  # the longest is first
    assert "lost a row" in lines
    assert any(line.startswith("repeat it: python -c") for line in lines)
    assert lines[-1].endswith("failed: bad")


def test_every_program_is_a_part_and_every_part_is_seeded():
    """Twenty thousand spoilt files, and every classifier at every system call."""
    found = parts(41)
    programs = {part.command[1] for part in found}
    root = Path(__file__).parent
    for module in programs - {"pytest"}:
        assert (root.parent / module.replace(".", "/")).with_suffix(".py").is_file()
    assert all("--seed" in part.command for part in found if "pytest" not in part.command)
    files = [
        int(part.command[part.command.index("--files") + 1])
        for part in found
        if "--files" in part.command
    ]
    assert sum(files) >= 20_000
    tried = ",".join(
        part.command[part.command.index("--names") + 1]
        for part in found
        if "--names" in part.command
    )
    assert sorted(tried.split(",")) == sorted(NAMES)
