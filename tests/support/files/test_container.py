"""The layout of files: what goes in comes out, and every wrong file says what is wrong with it."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkvb._support import files
from dkvb._support.files import FileError, State, container

DTYPES = list(container._DTYPES.values())


def arrays(draw) -> dict[str, np.ndarray]:
    found = {}
    for name in draw(st.sets(st.text(min_size=1, max_size=8), max_size=6)):
        dtype = draw(st.sampled_from(DTYPES))
        shape = draw(st.lists(st.integers(0, 5), max_size=3))
        raw = draw(st.binary(min_size=1, max_size=8)) * 64
        size = int(np.prod(shape)) * dtype.itemsize
        content = np.frombuffer((raw * (1 + size // len(raw)))[:size], np.uint8)
        if dtype == np.bool_:
            content = content % 2
        found[name] = content.view(dtype).reshape(shape)
    return found


facts = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


@settings(max_examples=60)
@given(data=st.data(), facts=facts, kind=st.text(max_size=6))
def test_what_goes_in_comes_out(tmp_path_factory, data, facts, kind):
    state = State(arrays(data.draw), facts)
    path = tmp_path_factory.mktemp("container") / "file"
    digest = files.write(path, kind, state)
    found = files.read(path, kind)
    assert (found.kind, found.version, found.digest) == (kind, files.VERSION, digest)
    assert found.state.facts == json.loads(json.dumps(facts))
    assert found.state.arrays.keys() == state.arrays.keys()
    for name, array in state.arrays.items():
        other = found.state.arrays[name]
        assert (other.dtype, other.shape) == (array.dtype, array.shape)
        assert other.tobytes() == array.tobytes()
    again = path.with_name("again")
    files.write(again, kind, found.state)
    assert again.read_bytes() == path.read_bytes()  # the same state, the same file


def some_state() -> State:
    return State(
        {"a": np.arange(12.0).reshape(3, 4), "b": np.arange(5), "c": np.zeros((0, 3))},
        {"name": "päron", "list": [1, 2.5, None]},
    )


@pytest.fixture(params=["in memory", "mapped"])
def path(tmp_path, request, monkeypatch):
    if request.param == "mapped":
        monkeypatch.setattr(container, "MAPPED_BYTES", 9)
    files.write(tmp_path / "file", "thing", some_state())
    return tmp_path / "file"


def test_safetensors_itself_reads_our_files(path):
    library = pytest.importorskip("safetensors.numpy")
    found = library.load_file(path)
    assert found.keys() == some_state().arrays.keys()
    assert all(np.array_equal(found[name], some_state().arrays[name]) for name in found)


def test_arrays_that_do_not_lie_in_rows_are_saved_as_they_are(tmp_path):
    turned = np.arange(6.0).reshape(2, 3).T
    files.write(tmp_path / "file", "thing", State({"t": turned, "also": turned[1:]}))
    found = files.read(tmp_path / "file").state.arrays
    assert np.array_equal(found["t"], turned)
    assert np.array_equal(found["also"], turned[1:])


def test_tensors_of_torch_and_arrays_become_arrays(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.ones(2, 3, requires_grad=True)
    state = State.of({"n": 1}, weight=weight, counts=np.arange(2), number=torch.tensor(5))
    files.write(tmp_path / "file", "thing", state)
    found = files.read(tmp_path / "file").state
    assert found.facts == {"n": 1}
    np.testing.assert_array_equal(found.array("weight", np.float32, (2, 3)), np.ones((2, 3)))
    np.testing.assert_array_equal(found.whole_numbers("counts", (2,)), [0, 1])
    assert found.array("number", np.int64, ()) == 5


def test_large_arrays_stay_in_the_file_which_never_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MAPPED_BYTES", 1 << 20)
    large = np.zeros(1 << 20)
    files.write(tmp_path / "file", "thing", State({"large": large, "small": large[:3]}))
    before = (tmp_path / "file").read_bytes()
    found = files.read(tmp_path / "file").state.arrays
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(tmp_path / "file") in maps.read_text()
    for array in found.values():
        array += 1
    assert (tmp_path / "file").read_bytes() == before
    (tmp_path / "file").unlink()
    assert found["large"].sum() == len(large)


def reason_of(path) -> tuple[str, str]:
    with pytest.raises(FileError) as caught:
        files.read(path, "thing")
    assert str(path) in str(caught.value)
    return caught.value.reason, str(caught.value)


def test_every_cut_is_noticed(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert reason_of(path)[0] == "truncated", length


def test_every_changed_byte_is_noticed(path):
    whole = path.read_bytes()
    for place in range(len(whole)):
        for change in (1, 0x80):
            spoilt = bytearray(whole)
            spoilt[place] ^= change
            path.write_bytes(spoilt)
            reason, message = reason_of(path)
            assert reason in ("damaged", "truncated", "foreign", "newer"), message
    path.write_bytes(whole + b"x")
    assert reason_of(path) == ("damaged", reason_of(path)[1])


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04" + b"x" * 100, b"\x93NUMPY" + b"x" * 100, b"y,x\n1,2\n" * 9]
)
def test_other_files_are_foreign(path, content):
    path.write_bytes(content)
    assert reason_of(path)[0] == "foreign"


def test_other_safetensors_files_are_foreign(path):
    library = pytest.importorskip("safetensors.numpy")
    library.save_file({"a": np.zeros(3)}, path)
    reason, message = reason_of(path)
    assert reason == "foreign"
    assert "another safetensors file" in message


def test_other_kinds_folders_and_nothing(path, tmp_path):
    files.write(path, "plant", State())
    assert reason_of(path) == ("foreign", f"{path}: expected a file of thing; got plant")
    assert reason_of(tmp_path)[0] == "foreign"
    assert reason_of(tmp_path / "nothing")[0] == "missing"
    with pytest.raises(ValueError, match="expected the name of a file"):
        files.write(tmp_path, "thing", State())
    with pytest.raises(ValueError, match="an existing folder"):
        files.write(tmp_path / "no" / "file", "thing", State())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_make_us_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert reason_of(tmp_path / "pipe")[0] == "foreign"


def test_a_newer_format_asks_for_a_newer_dkvb(path):
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    meaning = json.loads(header["__metadata__"]["dkvb"])
    header["__metadata__"]["dkvb"] = json.dumps({**meaning, "version": files.VERSION + 1})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    reason, message = reason_of(path)
    assert reason == "newer"
    assert "update dkvb" in message


def test_asking_for_what_is_not_there():
    state = State({"a": np.zeros((2, 3), np.float32)}, {"n": 3, "yes": True, "text": "t"})
    for ask, says in [
        (lambda: state.array("b", np.float32, (2, 3)), "expected a tensor 'b'"),
        (lambda: state.array("a", np.float64, (2, 3)), "expected float64 .*got float32"),
        (lambda: state.array("a", np.float32, (2, 4)), r"expected float32 \(2, 4\)"),
        (lambda: state.array("a", np.float32, (6,)), r"expected float32 \(6\)"),
        (lambda: state.fact("m", int), "expected a fact 'm'"),
        (lambda: state.fact("text", int), "expected int; got 't'"),
        (lambda: state.fact("yes", int), "expected int; got True"),
        (lambda: state.whole_number("n", high=3), "expected 0 to 2; got 3"),
        (lambda: State({"i": np.array([5])}).whole_numbers("i", (1,), high=5), "0 to 4"),
    ]:
        with pytest.raises(FileError, match=says) as caught:
            ask()
        assert caught.value.reason == "damaged"
