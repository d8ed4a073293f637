"""What `embed` does with items that are broken, noisy, too many, or change meanwhile."""

import io
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from dkvb.embedding import (
    CallableEncoder,
    ImageTransform,
    PixelNoise,
    UnreadableItemsError,
    embed,
    load_dataset,
)
from dkvb.embedding.cache import digests as digests_module
from dkvb.embedding.datasets.dataset import texts

from . import tiny


def picture(seed: int, size: tuple[int, int] = (12, 9)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, size=(*size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def pixels_encoder() -> CallableEncoder:
    """The mean of each of 8 × 8 × 3 pixels' channels, and one pixel."""
    return CallableEncoder(
        lambda batch: torch.stack(list(batch)).flatten(2).mean(dim=2),
        name="means",
        dimension=3,
        fingerprint="1",
        transform=ImageTransform(8, mean=(0.0,) * 3, std=(1.0,) * 3),
    )


@pytest.fixture
def pictures(tmp_path):
    """Two classes of pictures; of ten files one is cut and one is no picture."""
    for i in range(10):
        folder = tmp_path / "pictures" / ("cat" if i < 5 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        picture(i).save(folder / f"{i}.png")
    cut = tmp_path / "pictures" / "cat" / "2.png"
    cut.write_bytes(cut.read_bytes()[:100])
    (tmp_path / "pictures" / "dog" / "7.png").write_text("no picture")
    return tmp_path / "pictures"


def test_unreadable_pictures_are_named_at_the_end(tmp_path, pictures):
    with pytest.raises(UnreadableItemsError, match=r"2 cannot \(cat/2.png, dog/7.png\)") as caught:
        embed(pixels_encoder(), load_dataset(pictures), tmp_path / "cache")
    assert [item.item for item in caught.value.skipped] == [2, 7]
    assert all(item.reason for item in caught.value.skipped)


def test_unreadable_pictures_are_left_out_where_asked(tmp_path, pictures):
    dataset = load_dataset(pictures)
    found = embed(pixels_encoder(), dataset, tmp_path / "cache", on_error="skip", shard_rows=4)
    assert found.items.tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
    assert found.labels.tolist() == ["cat"] * 4 + ["dog"] * 4
    assert found.array().shape == (8, 3)
    # Each row belongs to its picture, also after one that has none.
    for row, i in zip(found.array(), found.items, strict=True):
        expected = pixels_encoder().transform(dataset.item(int(i))).flatten(1).mean(dim=1)
        np.testing.assert_allclose(row, expected.numpy(), rtol=1e-6)
    again = embed(pixels_encoder(), dataset, tmp_path / "cache", on_error="skip")
    assert again.embedded == 0
    assert [item.name for item in again.skipped] == ["cat/2.png", "dog/7.png"]


def test_a_batch_of_nothing_but_broken_items(tmp_path, pictures):
    found = embed(
        pixels_encoder(), load_dataset(pictures), tmp_path, on_error="skip", batch_rows=1,
        shard_rows=1,
    )  # fmt: skip
    assert len(found.array()) == 8


def test_a_file_that_is_gone_is_unreadable_and_one_that_is_back_is_new(tmp_path, pictures):
    dataset = load_dataset(pictures)
    (pictures / "cat" / "0.png").unlink()
    found = embed(pixels_encoder(), dataset, tmp_path / "cache", on_error="skip")
    assert [item.item for item in found.skipped] == [0, 2, 7]
    picture(0).save(pictures / "cat" / "0.png")
    back = embed(pixels_encoder(), dataset, tmp_path / "cache", on_error="skip")
    assert [item.item for item in back.skipped] == [2, 7]


def test_files_that_did_not_change_are_hashed_once(tmp_path, pictures, monkeypatch):
    monkeypatch.setattr(digests_module, "_STILL_FRESH", -60.0)
    dataset = load_dataset(pictures)
    embed(pixels_encoder(), dataset, tmp_path / "cache", on_error="skip")
    read = []
    counting = replace(dataset, read=lambda i: read.append(i) or dataset.read(i))
    assert embed(pixels_encoder(), counting, tmp_path / "cache", on_error="skip").embedded == 0
    assert read == []
    picture(99).save(pictures / "cat" / "0.png")
    os.utime(pictures / "cat" / "0.png", (1, 1))  # another time, however coarse the disk's clock is
    changed = embed(pixels_encoder(), counting, tmp_path / "cache", on_error="skip")
    assert changed.embedded == 10
    assert sorted(read) == [0, *range(10)]  # the new one to be known, then all


def test_data_that_changes_while_it_is_embedded_is_refused(tmp_path):
    dataset = tiny.dataset(8)
    answers = iter(range(100))
    fickle = replace(dataset, read=lambda i: f"{next(answers)}".encode())
    with pytest.raises(ValueError, match="has changed"):
        embed(tiny.encoder(), fickle, tmp_path, workers=1)


def test_rows_that_are_not_finite_are_refused_with_the_items_name(tmp_path):
    large = CallableEncoder(
        lambda batch: [[1e6] for _ in batch],
        name="large", dimension=1, takes="text", fingerprint="1",
    )  # fmt: skip
    assert embed(large, tiny.dataset(3), tmp_path).array().max() == np.float32(1e6)
    with pytest.raises(ValueError, match="NaN or infinity near row 0"):
        embed(large, tiny.dataset(3), tmp_path, dtype="float16")


def test_rows_of_another_width_are_refused(tmp_path):
    wide = CallableEncoder(
        lambda batch: np.zeros((len(batch), 2)),
        name="wide", dimension=3, takes="text", fingerprint="1",
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"expected rows of shape \(4, 3\); got \(4, 2\)"):
        embed(wide, tiny.dataset(4), tmp_path)


def test_a_gpu_without_memory_for_a_batch_gets_halves(tmp_path):
    sizes = []

    def small(batch):
        sizes.append(len(batch))
        if len(batch) > 3:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return [[float(len(text))] for text in batch]

    encoder = CallableEncoder(small, name="s", dimension=1, takes="text", fingerprint="1")
    dataset = tiny.dataset(10)
    found = embed(encoder, dataset, tmp_path, batch_rows=10)
    assert found.array().ravel().tolist() == [len(dataset.item(i)) for i in range(10)]
    assert max(sizes[1:]) <= 5


def test_noise_depends_on_the_picture_and_the_seed_alone(tmp_path, pictures):
    dataset = load_dataset(pictures)

    def noisy(cache, alpha, seed, **options):
        noise = PixelNoise(alpha, seed)
        options |= {"on_error": "skip", "noise": noise}
        return embed(pixels_encoder(), dataset, tmp_path / cache, **options).array()

    first = noisy("a", 0.1, 1)
    assert np.array_equal(noisy("b", 0.1, 1, batch_rows=1, workers=1), first)
    plain = embed(pixels_encoder(), dataset, tmp_path / "a", on_error="skip").array()
    assert not np.array_equal(first, plain)
    assert not np.array_equal(noisy("a", 0.1, 2), first)
    # A mean over 8 × 8 places, each an average of about 1.7 pixels: within a few deviations.
    assert np.abs(first - plain).max() < 0.1
    assert np.abs(noisy("a", 1e-4, 1) - plain).max() < 5e-3  # 8 bits would round it away


def test_every_picture_has_noise_of_its_own_of_the_size_asked_for():
    noise = PixelNoise(0.2, seed=3)
    one, two = (np.full((50, 60, 3), value, np.float32) for value in (0.2, 0.3))
    assert np.array_equal(noise(one), noise(one))
    assert np.abs((noise(one) - one) - (noise(two) - two)).max() > 0.2
    assert abs((noise(one) - one).std() - 0.2) < 0.01
    assert abs((noise(one) - one).mean()) < 0.01


def test_noise_needs_pictures(tmp_path):
    with pytest.raises(ValueError, match="expected an image encoder"):
        embed(tiny.encoder(), tiny.dataset(3), tmp_path, noise=PixelNoise(0.1))
    with pytest.raises(ValueError, match="noise: expected a number"):
        PixelNoise(-1.0)


def test_a_callable_without_a_fingerprint_is_refused():
    with pytest.raises(ValueError, match="fingerprint: expected"):
        CallableEncoder(len, name="x", dimension=1, fingerprint="")


def test_progress_goes_to_stderr_and_only_where_asked(tmp_path, capsys):
    embed(tiny.encoder(), tiny.dataset(3), tmp_path, progress=True)
    shown = capsys.readouterr()
    assert "tiny" in shown.err
    assert "item/s" in shown.err
    assert shown.out == ""
    embed(tiny.encoder(), texts("t", ["a"]), tmp_path)
    assert capsys.readouterr().err == ""


def test_pictures_of_every_mode_become_three_channels():
    transform = ImageTransform(4)
    for mode in ("L", "RGBA", "P", "CMYK", "1"):
        buffer = io.BytesIO()
        Image.new(mode, (7, 5)).save(buffer, "TIFF")
        assert transform(Image.open(buffer)).shape == (3, 4, 4)
