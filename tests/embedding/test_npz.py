"""Large embedding files: written in parts, memory-mapped when read."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkvb.embedding import npz as embeddings_file
from dkvb.embedding.npz import read_embeddings, read_encoder, read_labelled, write_embeddings


def rows(n, width=7, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=(n, width)).astype(dtype)


@given(sizes=st.lists(st.integers(0, 5), min_size=1).filter(sum))
def test_parts_come_back_as_one_and_numpy_reads_the_file(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("parts") / "a.npz"
    parts = [rows(n, seed=i) for i, n in enumerate(sizes)]
    labels = np.arange(sum(sizes))
    write_embeddings(path, parts, y=labels, about="é")
    x, y = read_labelled(path)
    assert np.array_equal(x, np.concatenate(parts))
    assert np.array_equal(y, labels)
    with np.load(path, allow_pickle=False) as archive:
        assert np.array_equal(archive["x"], x)
        assert str(archive["about"]) == "é"


def test_the_same_rows_make_the_same_bytes_however_they_are_cut(tmp_path):
    x = rows(10)
    write_embeddings(tmp_path / "a.npz", [x], y=np.arange(10))
    write_embeddings(tmp_path / "b.npz", [x[:3], x[3:]], y=np.arange(10))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("ours", [True, False])
def test_large_files_are_mapped(tmp_path, monkeypatch, dtype, ours):
    x = rows(20, dtype=dtype)
    path = tmp_path / "a.npz"
    if ours:
        write_embeddings(path, [x], y=np.arange(20))
    else:
        np.savez(path, y=np.arange(20), x=x)
    small = read_embeddings(path)
    assert not isinstance(small, np.memmap)
    assert small.dtype == np.float32
    monkeypatch.setattr(embeddings_file, "MAPPED_FROM", 100)
    mapped, y = read_labelled(path)
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    assert mapped.dtype == dtype
    assert np.array_equal(mapped, x)
    assert y.tolist() == list(range(20))


def test_what_cannot_be_mapped_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings_file, "MAPPED_FROM", 1)
    x = rows(20)
    np.savez_compressed(tmp_path / "compressed.npz", x=x)
    np.savez(tmp_path / "columns.npz", x=np.asfortranarray(x))
    np.savez(tmp_path / "double.npz", x=x.astype(np.float64))
    for name in ("compressed", "columns", "double"):
        found = read_embeddings(tmp_path / f"{name}.npz")
        assert not isinstance(found, np.memmap)
        assert np.array_equal(found, x)


def test_mapped_rows_are_checked_too(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings_file, "MAPPED_FROM", 1)
    monkeypatch.setattr(embeddings_file, "_CHUNK", 4)
    x = rows(10)
    x[6, 2] = np.nan
    np.savez(tmp_path / "nan.npz", x=x)
    with pytest.raises(ValueError, match="the first is row 6"):
        read_embeddings(tmp_path / "nan.npz")
    with pytest.raises(ValueError, match="expected width 3"):
        read_embeddings(tmp_path / "nan.npz", width=3)


def test_the_encoder_is_read_where_a_file_names_it(tmp_path):
    path = tmp_path / "a.npz"
    write_embeddings(path, [rows(3)], encoder="eyes", encoder_fingerprint="a1")
    assert read_encoder(path) == ("eyes", "a1")
    np.savez(path, x=rows(3))
    assert read_encoder(path) == (None, None)
    np.savez(path, x=rows(3), encoder=np.arange(3), encoder_fingerprint="")  # of others
    assert read_encoder(path) == (None, None)
    assert read_encoder(tmp_path / "none.npz") == (None, None)
    np.savez(path, x=rows(3), encoder=np.array("eyes", dtype=object))
    with pytest.raises(ValueError, match=r"--data .*a\.npz: expected .* strings encoder"):
        read_encoder(path, "--data")


def test_a_damaged_fingerprint_is_no_missing_one(tmp_path):
    path = tmp_path / "a.npz"
    write_embeddings(path, [rows(3)], encoder="eyes", encoder_fingerprint="a1b2c3")
    content = bytearray(path.read_bytes())
    content[content.index("b2".encode("utf-32-le"))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read"):
        read_encoder(path)


def peak_of(call):
    """Bytes of memory that a call takes at most, and the error it raises."""
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


def test_a_small_file_that_would_take_much_memory_is_refused_by_its_header(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((2000, 5000), np.float32), y=np.zeros(2000, int))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(embeddings_file, "_MEMORY", 20 << 20)
    for read in (read_embeddings, read_labelled):
        peak, message = peak_of(lambda read=read: read(path))
        assert "40.0 MB of memory" in message
        assert peak < 1 << 20
    for width in (4, 5001):
        peak, message = peak_of(lambda width=width: read_embeddings(path, width=width))
        assert f"expected width {width}" in message
        assert peak < 1 << 20
    assert embeddings_file.width_of(path) == 5000


def test_labels_that_would_take_much_memory_are_refused_by_their_header(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, x=np.zeros((50, 2), np.float32), y=np.array(["a" * 200_000] * 50))
    monkeypatch.setattr(embeddings_file, "_MEMORY", 20 << 20)
    peak, message = peak_of(lambda: read_labelled(path))
    assert "40.0 MB of memory" in message
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("a" * 1001, r"at most 1,000 characters; got one of 1,001 that starts with 'aaaa"),
        ("a\0b", "without control characters"),
        ("a\n", "without control characters"),
        ("\x1b[31m", "without control characters"),
        ("\ud800", "without control characters"),
    ],
)
def test_labels_that_no_model_can_hold_are_refused(tmp_path, label, problem):
    np.savez(tmp_path / "a.npz", x=rows(2), y=np.array(["good", label]))
    with pytest.raises(ValueError, match=rf"a\.npz, y: expected labels .*{problem}|{problem}"):
        read_labelled(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=rows(2), y=np.array(["good", "é 漢 🦊 a b"]))
    assert len(read_labelled(tmp_path / "a.npz")[1]) == 2


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_an_array_of_labels_is_refused_as_its_texts_are(labels):
    from dkvb._support.label_text import check_text_array, check_texts

    array = np.array(labels)
    refused = []
    for check, given_labels in ((check_texts, array.tolist()), (check_text_array, array)):
        try:
            check(given_labels, "y")
            refused.append(None)
        except ValueError as error:
            refused.append(str(error))
    assert refused[0] == refused[1]


def test_a_header_that_promises_more_than_there_is_says_so(tmp_path):
    path = tmp_path / "a.npz"
    buffer = io.BytesIO()
    np.save(buffer, rows(2))
    content = buffer.getvalue().replace(b"(2, 7)", b"(9, 9)")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(ValueError, match="its header describes"):
        read_embeddings(path)


def test_changed_bytes_of_the_rows_are_noticed(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=rows(9))
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="CRC"):
        read_embeddings(path)
