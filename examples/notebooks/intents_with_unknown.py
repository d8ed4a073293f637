# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Intents from text, with "unknown"
#
# A chat assistant knows fifteen intents. Customers ask about twenty. What it was never taught
# should be answered with "unknown", not with the nearest intent. The sentences are of BANKING77,
# as embeddings of a sentence encoder (all-MiniLM-L6-v2), which come with the package. For texts
# of your own: `Encoder("sentence-transformers:all-MiniLM-L6-v2")`.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from dkvb import KernelClassifier
from dkvb.embedding.datasets.bundled import load

X, y = load("banking77", "train")
X_test, y_test = load("banking77", "test")
intents = np.unique(y)
taught, untaught = intents[:15], intents[15:]
print(f"taught: {', '.join(taught[:3])}, …; never taught: {', '.join(untaught[:3])}, …")

# %% [markdown]
# ## Teach one intent after the other

# %%
clf = KernelClassifier()
for intent in taught:
    clf.partial_fit(X[y == intent], y[y == intent])
clf.tune()
known = np.isin(y_test, taught)
accuracy = clf.score(X_test[known], y_test[known])
print(f"accuracy on sentences of the taught intents: {accuracy:.1%}")
assert accuracy > 0.9

# %% [markdown]
# ## What lies far from everything learned
#
# `novelty` is a number from 0 to 1: the quantile of the distance to the learned examples.
# Sentences of the intents that were never taught have a higher one.

# %%
novelty = clf.novelty(X_test)
auroc = roc_auc_score(~known, novelty)
print(f"area under the ROC curve, taught against never taught: {auroc:.3f}")
assert auroc > 0.75

# %% [markdown]
# ## Say "unknown"
#
# `novelty_threshold` is the share of known sentences that one is ready to lose: 0.9 answers
# "unknown" to about one known sentence in ten.

# %%
clf.set_params(novelty_threshold=0.9)
answers = clf.predict(X_test)
caught = np.mean(answers[~known] == "unknown")
lost = np.mean(answers[known] == "unknown")
print(f'"unknown": {caught:.0%} of the sentences never taught, {lost:.0%} of the taught ones')
assert caught > 2 * lost

# %% [markdown]
# ## Teach what was unknown
#
# A person labels ten of the unknown sentences of one intent; the intent is known from then on.

# %%
new = untaught[0]
clf.partial_fit(X[y == new][:10], y[y == new][:10])
recall = np.mean(clf.predict(X_test[y_test == new]) == new)
print(f"{new}: {recall:.0%} recognised after ten sentences")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
bins = np.linspace(0, 1, 21)
left.hist(novelty[known], bins, alpha=0.7, label="taught", density=True)
left.hist(novelty[~known], bins, alpha=0.7, label="never taught", density=True)
left.axvline(0.9, color="black", linestyle=":")
left.set(xlabel="novelty", ylabel="density", title="Sentences of the test set")
left.legend(frameon=False)
thresholds = np.linspace(0.5, 1, 51)
right.plot(
    [np.mean(novelty[known] > t) for t in thresholds],
    [np.mean(novelty[~known] > t) for t in thresholds],
    marker=".",
)
right.plot([0, 0.5], [0, 0.5], color="grey", linestyle=":")
right.set(xlabel='taught, answered "unknown"', ylabel='never taught, answered "unknown"')
right.set_title(f"One point per threshold (AUROC {auroc:.2f})")
figure.tight_layout()
