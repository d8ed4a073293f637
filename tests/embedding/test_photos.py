"""Folders of photos as phones and people make them."""

import os
import warnings

import numpy as np
import pytest
from PIL import Image

from dkvb.embedding import UnreadableItemsError, embed, load_dataset
from dkvb.embedding.datasets import dataset as datasets

from .packages import needs
from .test_run import pixels_encoder


def photo(path, size=(4, 2), colour=(9, 8, 7), **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **how)


def names(found):
    return [found.item_name(i) for i in range(len(found))]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_upright_as_its_exif_orientation_says(tmp_path, orientation):
    pixels = np.zeros((6, 4, 3), np.uint8)
    pixels[:3, :2] = 255  # the upper left corner
    upright = Image.fromarray(pixels)
    turns = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # how a phone stored it: the inverse
    stored = upright.transpose(turns[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a").mkdir()
    stored.save(tmp_path / "a" / "photo.png", exif=exif)
    found = load_dataset(tmp_path).item(0)
    assert np.array_equal(np.asarray(found), pixels)


def test_orientation_changes_the_embedding(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.random.default_rng(0).integers(0, 256, size=(9, 12, 3), dtype=np.uint8)
    for name, how in (("lying", {}), ("upright", {"exif": exif})):
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "p.png", **how)
    items = load_dataset(tmp_path)
    lying, upright = (items.item(i) for i in range(2))
    assert lying.size == (12, 9)
    assert upright.size == (9, 12)


def test_dot_files_are_passed_over(tmp_path):
    for name in ("a/1.png", "b/2.png"):
        photo(tmp_path / name)
    for name in ("a/._1.png", "a/.hidden.png", ".trash/3.png", "b/.thumbs/2.png"):
        photo(tmp_path / name)
    (tmp_path / ".DS_Store").write_bytes(b"x")
    assert names(load_dataset(tmp_path)) == ["a/1.png", "b/2.png"]


def test_empty_classes_and_loose_images_are_reported(tmp_path):
    photo(tmp_path / "a" / "1.png")
    photo(tmp_path / "loose.png")
    (tmp_path / "empty").mkdir()
    with pytest.warns(UserWarning) as caught:  # noqa: PT030
        found = load_dataset(tmp_path)
    texts = [str(one.message) for one in caught]
    assert any("1 image is left out (loose.png): beside the folders" in text for text in texts)
    assert any("1 class is left out (empty): no images in the folder" in text for text in texts)
    assert names(found) == ["a/1.png"]
    assert found.labels.tolist() == ["a"]


def test_heic_is_read_by_its_extra_or_named_in_a_warning(tmp_path, monkeypatch):
    photo(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    monkeypatch.setitem(__import__("sys").modules, "pillow_heif", None)
    with pytest.warns(UserWarning, match=r"1 HEIC image is .*a/2\.HEIC.*dkvb\[heic\]"):
        found = load_dataset(tmp_path)
    assert names(found) == ["a/1.png"]


def test_heic_photos_are_decoded(tmp_path):
    heif = needs("pillow_heif")
    (tmp_path / "a").mkdir()
    heif.from_pillow(Image.new("RGB", (64, 48), (200, 10, 10))).save(tmp_path / "a" / "1.heic")
    found = load_dataset(tmp_path)
    assert found.item(0).size == (64, 48)


def test_the_split_that_was_taken_is_named(tmp_path):
    for split in ("train", "test"):
        photo(tmp_path / split / "a" / f"{split}.png")
    with pytest.warns(UserWarning, match=r"the split train was taken; there are test, train"):
        assert names(load_dataset(tmp_path)) == ["a/train.png"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names(load_dataset(tmp_path, "test")) == ["a/test.png"]


def test_a_class_may_be_called_train(tmp_path):
    for name in ("train", "bus"):
        photo(tmp_path / name / "1.png")
    assert load_dataset(tmp_path).labels.tolist() == ["bus", "train"]


def test_a_device_is_no_picture(tmp_path):
    photo(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "2.png").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "a" / "3.png")
    with pytest.raises(UnreadableItemsError) as caught:
        embed(pixels_encoder(), load_dataset(tmp_path), tmp_path / "cache")
    assert [item.name for item in caught.value.skipped] == ["a/2.png", "a/3.png"]
    assert all("not a regular file" in item.reason for item in caught.value.skipped)


def test_images_and_files_have_limits(tmp_path, monkeypatch):
    photo(tmp_path / "a" / "1.png", size=(30, 20))
    monkeypatch.setattr(datasets, "LARGEST_IMAGE", 599)
    with pytest.raises(ValueError, match="30 x 20 pixels are more than 599"):
        load_dataset(tmp_path).item(0)
    monkeypatch.setattr(datasets, "LARGEST_FILE", 10)
    with pytest.raises(OSError, match="more than 10 bytes"):
        load_dataset(tmp_path).item(0)


def test_names_of_folders_that_no_label_can_have_are_refused(tmp_path):
    photo(tmp_path / "a\nb" / "1.png")
    with pytest.raises(ValueError, match=r"names of folders: expected labels without control"):
        load_dataset(tmp_path)


def test_a_png_whose_chunks_do_not_fit_is_refused_as_an_image(tmp_path):
    """Pillow raises SyntaxError, which no command shows in one line."""
    pixels = np.random.default_rng(0).integers(0, 255, (40, 30, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    content = bytearray((tmp_path / "a.png").read_bytes())
    assert content[37:41] == b"IDAT"
    content[35] ^= 0x0F  # the length of that chunk: too small
    with pytest.raises(OSError, match="the file is damaged"):
        datasets.decode_image(bytes(content))


def test_an_image_whose_sides_pillow_itself_refuses_is_refused_in_one_line():
    """Pillow raises DecompressionBombError, which is no OSError, when it opens the file."""
    with pytest.raises(ValueError, match="pixels"):
        datasets.decode_image(b"P6 60000 60000 255\n" + bytes(30))
