"""What every test shares. The environment is set before torch, numba or Triton are imported."""

import functools
import os
from pathlib import Path

# Compiled test kernels are kept between runs, outside the source tree.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "numba"))
os.environ.setdefault("MPLBACKEND", "Agg")
# The matrices of tests are small, and where several processes run tests side by side, threads that
# wait for each other take most of the time. `_threads` has torch use two where it matters.
for library in ("OMP", "OPENBLAS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
# Where one of these is set, what commands print is coloured although nobody looks at it.
for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "TTY_COMPATIBLE"):
    os.environ.pop(name, None)

import numpy as np
import pytest
import torch
import typer.testing
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated

# Built once, and not for each call of a command: that takes longer than most commands run.
typer.testing._get_command = functools.cache(typer.testing._get_command)

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _threads(request: pytest.FixtureRequest) -> None:
    """Two threads where threads are under test, one elsewhere.

    The small steps of classifiers gain nothing from a second thread, and on a busy machine two
    that wait for each other lose much.
    """
    torch.set_num_threads(2 if request.path.parent.name in ("kernels", "bottleneck") else 1)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands keep embeddings in a cache of the tests, not in that of whoever runs them."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """No test draws other numbers because others ran before it in the same process."""
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed, fresh for every test."""
    return np.random.default_rng(0)
