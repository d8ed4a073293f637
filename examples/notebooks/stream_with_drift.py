# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # A stream with drift
#
# A camera's light changes slowly, and one day it is replaced. A classifier that only predicts
# gets worse without notice. This notebook watches a stream day by day with a test of drift, which
# needs no labels, and teaches a few labelled examples when the test says so. Embeddings are those
# of CIFAR-10 that come with the package; drift is made by mixing their components.

# %%
import matplotlib.pyplot as plt
import numpy as np

from dkvb import BottleneckClassifier, KernelClassifier, fit_keys
from dkvb.embedding.datasets.bundled import load

X, y = load("cifar10", "train")
X_test, y_test = load("cifar10", "test")
rng = np.random.default_rng(0)
rotation, _ = np.linalg.qr(rng.normal(size=(X.shape[1], X.shape[1])))


def camera(x: np.ndarray, day: int) -> np.ndarray:
    """The embeddings of a day: a slow change from day 10 on, another camera from day 25 on."""
    slow = 0.025 * min(max(0, day - 10), 15)
    strength = slow + (0.4 if day >= 25 else 0.0)
    return ((1 - strength) * x + strength * x @ rotation).astype(np.float32)


# %% [markdown]
# ## Two classifiers
#
# Both learn 500 photos on day 0. One is left alone. The other is taught 100 labelled photos on
# days when drift is found. The test compares distances to keys, fitted once to unlabelled
# CIFAR-100.

# %%
keys = fit_keys(load("cifar100")[0], n_codebooks=32, n_pairs=256, key_dim=8, epochs=2)
watch = BottleneckClassifier(keys, epochs=20).fit(X[:500], y[:500])
fixed = KernelClassifier().fit(X[:500], y[:500])
taught = KernelClassifier().fit(X[:500], y[:500])
reference = X[500:1000]

# %%
days = range(40)
history: dict[str, list[float]] = {"fixed": [], "taught": [], "p": []}
lessons = []
for day in days:
    chosen = rng.choice(len(X_test), 400, replace=False)
    today, labels = camera(X_test[chosen], day), y_test[chosen]
    p_value = watch.drift(reference, today).p_value
    history["p"].append(p_value)
    history["fixed"].append(fixed.score(today, labels))
    history["taught"].append(taught.score(today, labels))  # predicted before anything is learned
    if p_value < 0.001:
        lessons.append(day)
        new = rng.choice(np.arange(1000, len(X)), 100, replace=False)
        fresh = camera(X[new], day)
        taught.partial_fit(fresh, y[new])
        reference = fresh  # from now on, today is normal
print(f"drift found on days {lessons}")
late = slice(30, None)
print(f"accuracy after day 30: left alone {np.mean(history['fixed'][late]):.1%},", end=" ")
print(f"taught {np.mean(history['taught'][late]):.1%}")
assert not any(day < 10 for day in lessons)
assert any(25 <= day <= 26 for day in lessons)
assert np.mean(history["taught"][late]) > np.mean(history["fixed"][late]) + 0.05

# %% [markdown]
# ## Picture
#
# Above: accuracy of each day, predicted before anything of that day was learned. Below: the test
# of drift. The slow change (grey) costs a few points of accuracy and is not found; the new camera
# is found on its first day.

# %%
figure, (above, below) = plt.subplots(2, 1, figsize=(10, 5.5), sharex=True)
above.plot(days, 100 * np.array(history["fixed"]), label="left alone", color="C1")
above.plot(days, 100 * np.array(history["taught"]), label="taught when drift is found", color="C0")
above.vlines(lessons, 0, 100, color="C0", alpha=0.25)
above.set(ylabel="accuracy (%)", ylim=(0, 100))
above.legend(frameon=False, loc="lower left")
below.semilogy(days, np.maximum(history["p"], 1e-12), color="black")
below.axhline(0.001, color="grey", linestyle=":")
below.set(xlabel="day", ylabel="p-value of the drift test")
for axes in (above, below):
    axes.axvspan(10, 25, color="grey", alpha=0.08, lw=0)
    axes.axvline(25, color="grey", lw=1)
figure.tight_layout()
