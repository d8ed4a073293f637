"""The journal: whole records count, cut ones do not, damaged ones are an error."""

import warnings

import pytest

from dkvb._support.files import FileError
from dkvb.store import create, folder, journal, open_folder, read_folder

from ..support.files.models import rows
from .shared import assert_same_state, learned


def test_every_cut_of_the_journal_keeps_whole_records(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        ends, expected = [], [learned("kernel", (X, y))]
        for start in (0, 4, 8):
            model.learn(X[start : start + 4], y[start : start + 4])
            ends.append((path / "journal").stat().st_size)
            expected.append(learned("kernel", (X, y), (X[: start + 4], y[: start + 4])))
    whole = (path / "journal").read_bytes()
    first = 12 + int.from_bytes(whole[:8], "little")  # which is written together with the next
    for length in [0, *range(first, len(whole), 37)]:
        (path / "journal").write_bytes(whole[:length])
        count = sum(end <= length for end in ends)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", journal.JournalWarning)
            assert_same_state(read_folder(path).classifier, expected[count])
    (path / "journal").write_bytes(whole + b"\0" * 100)
    with pytest.warns(journal.JournalWarning, match="the last 100 bytes"):
        read_folder(path)
    (path / "journal").write_bytes(whole[:-5])
    with pytest.warns(journal.JournalWarning), open_folder(path) as model:
        model.learn(X[8:12], y[8:12])  # writes over what was cut off
    assert_same_state(read_folder(path).classifier, expected[3])


def test_what_was_cut_off_is_gone_after_the_next_record(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:1], y[:1])
        model.learn(X, y)
    whole = (path / "journal").read_bytes()
    (path / "journal").write_bytes(whole[:-5])
    with pytest.warns(journal.JournalWarning), open_folder(path) as model:
        model.learn(X[1:2], y[1:2])  # a shorter record than the one that was cut off
    expected = learned("kernel", (X, y), (X[:2], y[:2]))
    assert_same_state(read_folder(path).classifier, expected)


def test_a_journal_that_is_damaged_inside_is_refused(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:4], y[:4])
        first = (path / "journal").stat().st_size
        model.learn(X[4:8], y[4:8])
    whole = (path / "journal").read_bytes()
    for place in range(0, first, 17):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1
        (path / "journal").write_bytes(spoilt)
        with pytest.raises(FileError, match="the journal is damaged"):
            read_folder(path)


def test_a_failed_compaction_does_not_fail_what_was_learned(path, monkeypatch):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        monkeypatch.setattr(folder, "MOST_SECONDS", 0.0)
        model.learn(X[:2], y[:2])
        with monkeypatch.context() as context:
            context.setattr(folder.ModelFolder, "compact", _no_space)
            assert model.learn(X[2:5], y[2:5]) == 3
        assert model.model.pending == 2
        assert model.learn(X[5:7], y[5:7]) == 2
        assert model.model.pending == 1
    assert_same_state(read_folder(path).classifier, learned("kernel", (X, y), (X[:7], y[:7])))


def _no_space(self):
    raise OSError(28, "No space left on device")


def test_the_journal_of_another_snapshot_is_not_read(path):
    X, y = rows()
    with create(path, learned("kernel", (X, y))) as model:
        model.learn(X[:4], y[:4])
        stale = (path / "journal").read_bytes()
        model.forget("yak")
        (path / "journal").write_bytes(stale)  # as if killed before it was removed
    assert "yak" not in read_folder(path).classifier.classes_
    with open_folder(path) as model:
        model.learn(X[:1], ["elk"])
    found = read_folder(path)
    assert found.pending == 1
    assert "yak" not in found.classifier.classes_
