"""The compiled kernels from several Python threads, in forked processes, on read-only disks."""

import multiprocessing
import os
import subprocess
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread

import numpy as np
import pytest
import torch

from dkvb import kernels
from dkvb.kernels import _helpers, _numba
from dkvb.kernels.nearest import cpu as nearest
from dkvb.kernels.sgd import cpu as descend


def work(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of some heads, and values learned on them: large enough for several workers."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(40, 70, 5, generator=generator)
    heads = torch.randn(300, 40, 5, generator=generator)
    prepared = nearest.prepare(keys, 0.5 * keys.square().sum(2))
    codes = nearest.search(heads, prepared, torch.zeros(300, 40))[0][:, :, 0]
    values = torch.zeros(40, 70, 10)
    orders = torch.stack([torch.randperm(300, generator=generator) for _ in range(3)])
    descend.descend(values, codes, torch.arange(300) % 10, orders, 128, 0.3, 0.1)
    return codes, values


def test_four_python_threads_at_once():
    expected = [work(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, list(range(4)) * 5))
    for i, (codes, values) in enumerate(results):
        assert torch.equal(codes, expected[i % 4][0])
        assert torch.equal(values, expected[i % 4][1])


def _in_child(queue) -> None:
    codes, values = work()
    queue.put((codes.numpy(), values.numpy()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works_after_the_parent_has():
    codes, values = work()
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(queue,), daemon=True)
    child.start()
    assert queue._reader.poll(600), "the child hangs"
    child_codes, child_values = queue.get()
    child.join()
    assert np.array_equal(child_codes, codes.numpy())
    assert np.array_equal(child_values, values.numpy())


def test_an_error_in_one_worker_frees_the_others():
    def kernel(state, worker, workers, meetings):
        if worker == 1:
            raise MemoryError("no memory")
        _numba.wait(state, meetings, workers)

    with pytest.raises(MemoryError, match="no memory"):
        _numba.run_together(kernel, 2, 1)


@pytest.fixture
def two_threads():
    kernels.set_threads(2)
    yield
    kernels.set_threads(None)


def test_threads_are_as_many_as_torch_uses_unless_set(two_threads):
    assert (_numba.count_workers(5), _numba.count_workers(1)) == (2, 1)
    kernels.set_threads(None)
    assert _numba.count_workers(100) == torch.get_num_threads()


def test_without_torch_threads_are_those_of_the_environment_or_the_cores(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert kernels.count_threads() == 3
    for nothing in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", nothing)
        assert kernels.count_threads() == len(os.sched_getaffinity(0))


def test_no_threads_are_refused():
    with pytest.raises(ValueError, match=r"n: expected a whole number of at least 1; got 0"):
        kernels.set_threads(0)


def test_a_helper_that_has_begun_is_waited_for_and_its_error_raised(two_threads):
    begun, finished = Event(), []

    def kernel(state, worker, workers):
        if worker == 0:
            assert begun.wait(60)
            return
        begun.set()
        time.sleep(0.05)
        finished.append(worker)
        raise MemoryError("no memory")

    with pytest.raises(MemoryError, match="no memory"):
        _numba.run(kernel, 2)
    assert finished == [1]


@pytest.fixture
def helpers(monkeypatch):
    """No helpers, and lists of them that other tests do not see."""
    monkeypatch.setattr(_helpers, "_idle", [])
    monkeypatch.setattr(_helpers, "_started", set())
    return _helpers


def test_a_helper_that_has_not_begun_is_not_waited_for(two_threads, helpers):
    called, hold, busy = [], Event(), _helpers._Helper()
    helpers._started.add(busy)
    last = busy.begin(hold.wait, (), set())
    helpers._idle.append(busy)
    _numba.run(lambda state, worker, workers: called.append(worker), 2)
    hold.set()
    last.result(60)
    assert called == [0]


def test_where_no_thread_can_be_started_one_does_all_tasks(two_threads, helpers, monkeypatch):
    tried = []

    def refuse(thread):
        tried.append(thread)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_helpers.Thread, "start", refuse)
    called = []
    _numba.run(lambda state, worker, workers: called.append(worker), 2)
    assert called == [0]
    assert len(tried) == 1


def test_one_worker_does_all_tasks_where_all_helpers_are_busy(two_threads, helpers, monkeypatch):
    def refuse(thread):
        raise AssertionError("a thread was started")

    monkeypatch.setattr(helpers, "_started", set(range(helpers._MOST)))
    monkeypatch.setattr(_helpers.Thread, "start", refuse)
    called = []
    _numba.run(lambda state, worker, workers: called.append(worker), 2)
    assert called == [0]


def test_a_helper_is_taken_again(helpers):
    names = []
    for _ in range(3):
        helpers.help_with(lambda: names.append(current_thread()), 2).result(60)
    assert len(names) == 3
    assert len(set(names)) == 1


def test_more_helpers_than_cores_end_after_their_call(helpers, monkeypatch):
    monkeypatch.setattr(helpers, "_MOST", 1)
    threads, holds = [], [Event(), Event()]

    def hold(event):
        threads.append(current_thread())
        assert event.wait(60)

    calls = [helpers.help_with(hold, 2, event) for event in holds]
    for event, call in zip(holds, calls, strict=True):  # one after the other
        event.set()
        call.result(60)
    alive = [thread for thread in threads if (thread.join(1), thread.is_alive())[1]]
    assert len(alive) == len(helpers._started) == len(helpers._idle) == 1


def test_a_helper_keeps_nothing_of_a_call_that_failed(helpers):
    class Argument:
        pass

    def fail(argument):
        raise MemoryError("no memory")

    argument = Argument()
    kept = weakref.ref(argument)
    call = helpers.help_with(fail, 2, argument)
    assert isinstance(call.exception(60), MemoryError)
    del argument, call
    helpers.help_with(lambda: None, 2).result(60)  # the call before has ended
    assert kept() is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads have no cores here")
def test_a_helper_runs_on_another_core_than_its_caller(helpers, monkeypatch):
    allowed = os.sched_getaffinity(0)
    for core in sorted(allowed):
        monkeypatch.setattr(helpers, "_current_core", lambda core=core: core)
        for workers in (2, len(allowed) + 1):
            found = []
            call = helpers.help_with(lambda own=found: own.append(os.sched_getaffinity(0)), workers)
            call.result(60)
            others = allowed - {core} if workers <= len(allowed) else allowed
            assert found == [others]
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads have no cores here")
def test_the_core_of_the_caller_is_known():
    allowed = os.sched_getaffinity(0)
    try:
        for core in sorted(allowed):
            os.sched_setaffinity(0, {core})
            assert _helpers._current_core() == core
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("name", ["sched_setaffinity", "sched_getaffinity"])
def test_where_threads_cannot_be_moved_helpers_help(helpers, monkeypatch, name):
    def refuse(*arguments):
        raise PermissionError("not here")

    monkeypatch.setattr(os, name, refuse, raising=False)
    called = []
    helpers.help_with(called.append, 2, 1).result(60)
    assert called == [1]


def test_no_helper_is_asked_once_the_interpreter_ends(two_threads, helpers, monkeypatch):
    monkeypatch.setattr(_helpers.sys, "is_finalizing", lambda: True)
    called = []
    _numba.run(lambda state, worker, workers: called.append(worker), 2)
    assert called == [0]
    with pytest.raises(RuntimeError, match="the interpreter ends"):
        _numba.run_together(lambda state, worker, workers: None, 2)


def test_nothing_to_write_to_means_compiling_without_keeping(monkeypatch):
    def refuse(**options):
        if options.get("cache"):
            raise RuntimeError("no locator available")
        return lambda function: function

    monkeypatch.setattr(_numba.numba, "njit", refuse)
    assert _numba.compiled(len) is len


def test_the_rooms_import_without_numba():
    """Only the compiled modules need it, and only when they run."""
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "import dkvb.kernels.nearest, dkvb.kernels.kmeans, dkvb.kernels.sgd\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
