"""Where an experiment's embeddings come from."""

from pathlib import Path

import numpy as np
import pytest

from paper.source import Bundled, Prepared


def test_missing_files_are_named_with_the_way_to_make_them(tmp_path):
    source = Prepared(tmp_path, "clip")
    np.savez(tmp_path / "cifar10-clip-train.npz", x=np.ones((3, 2), np.float32), y=np.arange(3))
    with pytest.raises(ValueError, match="cifar10-clip-test") as error:
        source.require("cifar10", "cifar100")
    assert "cifar10-clip-test.npz, cifar100-clip-train.npz" in str(error.value)
    assert f"dkvb embed --encoder clip_vit_b32 --data cifar100 --out {tmp_path}" in str(error.value)
    x, y = source.rows("cifar10", "train")
    assert (x.shape, y.tolist()) == ((3, 2), [0, 1, 2])
    assert source.has("cifar10", "train")
    assert source.path("stl10", "train") == Path(tmp_path) / "stl10-clip-train.npz"


def test_the_bundled_subset_has_two_data_sets():
    source = Bundled()
    assert source.rows("cifar10", "test")[1].max() == 9
    assert not source.has("stl10", "train")
    with pytest.raises(ValueError, match=r"--quick: .*needs imagenet"):
        source.require("cifar10", "imagenet")


def test_files_are_found_by_the_encoders_name_or_the_papers(tmp_path):
    np.savez(tmp_path / "cifar10-clip-train.npz", x=np.ones((3, 2), np.float32), y=np.arange(3))
    np.savez(tmp_path / "cifar10-dino_resnet50-train.npz", x=np.ones((3, 2)), y=np.arange(3))
    assert all(Prepared(tmp_path, name).has("cifar10", "train") for name in ("clip", "dino"))
    assert all(
        Prepared(tmp_path, name).has("cifar10", "train")
        for name in ("clip_vit_b32", "dino_resnet50")
    )


def test_what_no_command_can_embed_is_said(tmp_path):
    with pytest.raises(ValueError, match="imagenet32 under convmixer cannot be embedded"):
        Prepared(tmp_path, "convmixer").require("cifar10", "imagenet32")
    with pytest.raises(ValueError, match="--data imagenet:FOLDER --out"):
        Prepared(tmp_path, "clip_vit_b32").require("imagenet", "cifar100")
