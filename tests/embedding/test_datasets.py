"""Every kind of data set, from files that the test writes."""

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dkvb.embedding import load_dataset
from dkvb.embedding.datasets import splits_of
from dkvb.embedding.datasets.dataset import texts

from .packages import needs


def write_binary_cifar(folder, fine=False):
    """Small batches in CIFAR's binary layout; returns the pixels and labels of the test batch."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    classes = 100 if fine else 10
    names = [f"class{i:02}" for i in range(classes)]
    (folder / ("fine_label_names.txt" if fine else "batches.meta.txt")).write_text(
        "\n".join(names) + "\n\n"
    )
    files = ["train.bin", "test.bin"] if fine else [f"data_batch_{i}.bin" for i in range(1, 6)]
    files += [] if fine else ["test_batch.bin"]
    for name in files:
        labels = rng.integers(0, classes, size=4, dtype=np.uint8)
        pixels = rng.integers(0, 256, size=(4, 32, 32, 3), dtype=np.uint8)
        rows = [labels[:, None], pixels.transpose(0, 3, 1, 2).reshape(4, -1)]
        if fine:
            rows.insert(0, np.zeros((4, 1), np.uint8))  # the coarse label
        (folder / name).write_bytes(np.concatenate(rows, axis=1).tobytes())
    return pixels, [names[label] for label in labels]


@pytest.mark.parametrize("fine", [False, True])
def test_binary_cifar(tmp_path, fine):
    pixels, names = write_binary_cifar(tmp_path / "cifar", fine)
    test = load_dataset(tmp_path / "cifar", "test")
    assert test.name == ("cifar100 test" if fine else "cifar10 test")
    assert test.labels.tolist() == names
    for i in range(4):
        assert np.array_equal(np.asarray(test.item(i)), pixels[i])
    assert len(load_dataset(tmp_path / "cifar")) == (4 if fine else 20)  # train unless said
    assert splits_of(tmp_path / "cifar") == ("train", "test")


def test_cut_missing_and_misnamed_binary_files_are_refused(tmp_path):
    folder = tmp_path / "cifar"
    write_binary_cifar(folder)
    with pytest.raises(ValueError, match="split: expected one of 'train', 'test'; got 'val'"):
        load_dataset(folder, "val")
    batch = folder / "test_batch.bin"
    batch.write_bytes(batch.read_bytes()[:-1])
    with pytest.raises(ValueError, match="rows of 3073 bytes"):
        load_dataset(folder, "test")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(ValueError, match=r"data_batch_3\.bin; it is missing"):
        load_dataset(folder, "train")
    (folder / "batches.meta.txt").write_text("only\ntwo\n")
    write_binary_cifar(tmp_path / "other")
    (tmp_path / "other" / "batches.meta.txt").write_text("one\n")
    with pytest.raises(ValueError, match="expected labels below 1"):
        load_dataset(tmp_path / "other", "train")


def write_folder(root):
    for name in ("b/1.png", "a/2.JPG", "a/deep/1.png", "a/10.png", "a/notes.txt"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".txt":
            path.write_text("no picture")
        else:
            Image.new("RGB", (4, 3), (len(name), 0, 0)).save(path)


def test_image_folder(tmp_path):
    write_folder(tmp_path / "train")
    found = load_dataset(tmp_path)
    names = [found.item_name(i) for i in range(len(found))]
    assert names == ["a/10.png", "a/2.JPG", "a/deep/1.png", "b/1.png"]
    assert found.labels.tolist() == ["a", "a", "a", "b"]
    assert found.item(3).getpixel((0, 0)) == (7, 0, 0)
    flat = load_dataset(tmp_path / "train" / "b")
    assert flat.labels is None
    assert splits_of(tmp_path) == ()
    with pytest.raises(ValueError, match=r"expected a folder test in .*; found train"):
        load_dataset(tmp_path, "test")
    write_folder(tmp_path / "test")
    assert splits_of(tmp_path) == ("train", "test")
    assert len(load_dataset(tmp_path, "test")) == 4


def test_image_folder_equals_torchvisions(tmp_path):
    library = needs("torchvision.datasets")
    write_folder(tmp_path)
    theirs = library.ImageFolder(str(tmp_path))
    ours = load_dataset(tmp_path)
    assert [str(ours.path(i)) for i in range(len(ours))] == [path for path, _ in theirs.samples]
    assert ours.labels.tolist() == [theirs.classes[target] for target in theirs.targets]


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one item"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_tables_of_texts(tmp_path, suffix):
    rows = [("a, b", "x"), ('say "hi"', "y"), ("two\nlines", "x")]
    path = tmp_path / f"table{suffix}"
    if suffix == ".jsonl":
        path.write_text("\n".join(json.dumps({"text": t, "label": y}) for t, y in rows))
    else:
        import csv

        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if suffix == ".tsv" else ",")
            writer.writerows([("Text", "label"), *rows])
    found = load_dataset(path, kind="text")
    assert [found.item(i) for i in range(3)] == [text for text, _ in rows]
    assert found.labels.tolist() == ["x", "y", "x"]


def test_columns_are_named_where_they_are_not_plain(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("utterance,group,split\nhello,3,train\nbye,-4,test\n")
    with pytest.raises(ValueError, match=r"column of texts; got columns utterance.*--column"):
        load_dataset(path, kind="text")
    with pytest.raises(ValueError, match="column: expected one of utterance, group"):
        load_dataset(path, kind="text", column="words")
    found = load_dataset(path, "test", kind="text", column="utterance", label_column="group")
    assert found.item(0) == "bye"
    assert found.labels.tolist() == [-4]
    with pytest.raises(ValueError, match="split: expected one of test, train"):
        load_dataset(path, "val", kind="text", column="utterance")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            "text,label\nhello\n",
            "line 2 has 1 cells, and the first line names 2 columns: text, label",
        ),
        ("text,label\nhello,\n", "row 0 has none"),
        ("text,label\n,x\n", "expected a text in column text; row 0 has ''"),
        ("", "expected rows"),
        ("text,label\n", "expected rows"),
    ],
)
def test_bad_tables_are_refused(tmp_path, content, problem):
    (tmp_path / "table.csv").write_text(content)
    with pytest.raises(ValueError, match=problem):
        load_dataset(tmp_path / "table.csv", kind="text")


@pytest.mark.parametrize("line", ["{", "[1]", '"text"'])
def test_bad_json_lines_are_refused(tmp_path, line):
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n' + line)
    with pytest.raises(ValueError, match="line 2 is none"):
        load_dataset(tmp_path / "t.jsonl", kind="text")


def test_a_table_a_split(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").write_text(f"text,label\n{split},x\n")
    assert splits_of(tmp_path) == ("train", "test")
    assert load_dataset(tmp_path, "test", kind="text").item(0) == "test"
    assert load_dataset(tmp_path, kind="text").item(0) == "train"


def test_a_table_of_picture_paths(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "one.png")
    (tmp_path / "table.csv").write_text("path,label\none.png,x\n")
    found = load_dataset(tmp_path / "table.csv")
    assert found.item(0).size == (2, 2)
    assert found.item_name(0).endswith("one.png")


def test_prepared_rows(tmp_path):
    rows, labels = torch.randn(6, 256), torch.arange(6) % 3
    torch.save((rows, labels), tmp_path / "all_data_test.pt")
    found = load_dataset(tmp_path, "test", kind="vector")
    assert np.array_equal(found.item(4), rows[4].numpy())
    assert found.labels.tolist() == labels.tolist()
    np.savez(tmp_path / "a.npz", x=rows.numpy())
    np.save(tmp_path / "a.npy", rows.numpy())
    for name in ("a.npz", "a.npy"):
        again = load_dataset(tmp_path / name, kind="vector")
        assert again.labels is None
        assert np.array_equal(again.item(5), rows[5].numpy())


class Evil:
    def __reduce__(self):
        return (print, ("code of a file was run",))


def test_prepared_files_cannot_run_code(tmp_path, capsys):
    (tmp_path / "a.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match="cannot be read"):
        load_dataset(tmp_path / "a.pt", kind="vector")
    assert "code of a file" not in capsys.readouterr().out


def test_the_encoder_decides_what_kind_of_items(tmp_path):
    write_folder(tmp_path)
    with pytest.raises(ValueError, match=r"expected items of kind text.*holds images"):
        load_dataset(tmp_path, kind="text")


def test_what_is_not_there_names_what_could_be(tmp_path):
    with pytest.raises(ValueError, match="expected one of cifar10, cifar100, stl10, imagenet"):
        load_dataset(tmp_path / "nothing")
    (tmp_path / "file.xyz").write_text("")
    with pytest.raises(ValueError, match=r"ends in \.csv"):
        load_dataset(tmp_path / "file.xyz")


@given(n=st.integers(1, 60), limit=st.integers(1, 80))
def test_a_limit_spreads_over_the_data(n, limit):
    found = texts("t", [str(i) for i in range(n)], np.arange(n)).subsample(limit)
    chosen = [int(found.item(i)) for i in range(len(found))]
    assert len(chosen) == min(n, limit)
    assert chosen == sorted(set(chosen)) == found.labels.tolist()
    if limit > 1:
        assert (chosen[0], chosen[-1]) == (0, n - 1)


def test_torchvisions_data_sets(tmp_path):
    needs("torchvision")
    from dkvb.embedding.datasets.torchvision_sets import as_dataset

    class Found:  # as CIFAR10 and STL10 have it
        classes = ("cat", "dog")

    pixels = np.random.default_rng(0).integers(0, 256, size=(3, 96, 96, 3), dtype=np.uint8)
    cifar, stl, unlabelled = Found(), Found(), Found()
    cifar.data, cifar.targets = pixels, [1, 0, 1]
    stl.data, stl.labels = pixels.transpose(0, 3, 1, 2), np.array([1, 0, 1])
    unlabelled.data, unlabelled.labels = stl.data, np.full(3, -1)
    for found in (cifar, stl, unlabelled):
        ours = as_dataset("x", found)
        assert np.array_equal(np.asarray(ours.item(2)), pixels[2])
        expected = None if found is unlabelled else ["dog", "cat", "dog"]
        assert (None if ours.labels is None else ours.labels.tolist()) == expected
    for name in ("cifar10", "stl10", "imagenet"):
        with pytest.raises(ValueError, match="give the folder"):
            load_dataset(f"{name}:{tmp_path}")
    with pytest.raises(ValueError, match="imagenet:FOLDER"):
        load_dataset("imagenet")


def test_torchvisions_cifar10_from_its_own_files(tmp_path, monkeypatch):
    library = needs("torchvision.datasets")
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, size=(2, 32, 32, 3), dtype=np.uint8)
    flat = pixels.transpose(0, 3, 1, 2).reshape(2, -1)
    for name, *_ in library.CIFAR10.train_list + library.CIFAR10.test_list:
        with (folder / name).open("wb") as file:
            pickle.dump({"data": flat, "labels": [3, 5]}, file)
    with (folder / "batches.meta").open("wb") as file:
        pickle.dump({"label_names": [f"c{i}" for i in range(10)]}, file)
    monkeypatch.setattr(library.CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr(library.cifar, "check_integrity", lambda *_: True)
    found = load_dataset(f"cifar10:{tmp_path}", "test")
    assert found.labels.tolist() == ["c3", "c5"]
    assert np.array_equal(np.asarray(found.item(1)), pixels[1])
    assert len(load_dataset(f"cifar10:{tmp_path}", "train")) == 10


def test_hugging_face(tmp_path):
    library = needs("datasets")
    features = library.Features(
        {"text": library.Value("string"), "label": library.ClassLabel(names=["no", "yes"])}
    )
    rows = {"text": ["a", "b", "c"], "label": [1, 0, 1]}
    library.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "texts"))
    found = load_dataset(f"hf:{tmp_path / 'texts'}", kind="text")
    assert [found.item(i) for i in range(3)] == ["a", "b", "c"]
    assert found.labels.tolist() == ["yes", "no", "yes"]
    image = Image.new("RGB", (3, 2), (9, 8, 7))
    pictures = library.Dataset.from_dict(
        {"image": [image], "y": [4]},
        features=library.Features({"image": library.Image(), "y": library.Value("int64")}),
    )
    library.DatasetDict({"test": pictures}).save_to_disk(str(tmp_path / "pictures"))
    shown = load_dataset(f"hf:{tmp_path / 'pictures'}", "test")
    assert shown.item(0).getpixel((0, 0)) == (9, 8, 7)
    assert shown.labels.tolist() == [4]
    with pytest.raises(ValueError, match="expected a data set with the split train"):
        load_dataset(f"hf:{tmp_path / 'pictures'}")
