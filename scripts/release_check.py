"""Build the wheel and the sdist, and try both in an environment that has nothing else.

    python scripts/release_check.py ENVIRONMENT

ENVIRONMENT is a virtual environment with requirements/release.txt and nothing more, as
`make release-check` makes it. The files stay in dist/.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUNDLED = "dkvb/embedding/datasets/bundled/"
MOST, MOST_WITHOUT_DATA = 8_000_000, 3_000_000  # bytes of the wheel
NEEDED = {"dkvb/py.typed", "dkvb/serve/page/index.html", f"{BUNDLED}cifar10-train.npz"}


def check_wheel(path: Path) -> None:
    """Raise if the wheel is too large, or has files too many or too few."""
    with zipfile.ZipFile(path) as archive:
        files = {info.filename: info.compress_size for info in archive.infolist()}
    data = sum(size for name, size in files.items() if name.startswith(BUNDLED))
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e6:.2f} MB, {(size - data) / 1e6:.2f} MB without bundled data")
    assert size < MOST
    assert size - data < MOST_WITHOUT_DATA
    assert files.keys() >= NEEDED, NEEDED - files.keys()
    tops = {name.partition("/")[0] for name in files}
    assert len(tops) == 2, f"expected dkvb and its metadata in the wheel; got {tops}"
    assert not any("__pycache__" in name or name.endswith((".nbi", ".nbc")) for name in files)


def check_sdist(path: Path) -> None:
    """Raise if the sdist has not what a build needs."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB, {len(names)} files")
    assert {"pyproject.toml", "README.md", "LICENSE", "src/dkvb/__init__.py"} <= names


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/release_check.py ENVIRONMENT")
    python = Path(sys.argv[1]).absolute() / "bin" / "python"
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # what an earlier build left

    def run(*arguments: object) -> None:
        subprocess.run([str(python), "-I", *map(str, arguments)], check=True, cwd=dist)

    dist.mkdir()
    run("-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_wheel(wheel)
    check_sdist(sdist)
    for file in (wheel, sdist):
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
        run(*install, "--no-build-isolation", file)
        run("-m", "pip", "check")
        run(ROOT / "scripts" / "smoke_test.py")
    print(f"{wheel.name} and {sdist.name} are in dist/")


if __name__ == "__main__":
    main()
