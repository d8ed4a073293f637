# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Unlearn a customer's data, with proof
#
# A customer asks for the data to be deleted. The model learned from it among many others. This
# notebook unlearns it and shows that the model now equals one that never saw it: the learned
# state bit for bit, the file byte for byte. It also tries to find out who was learned, before and
# after.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dkvb import KernelClassifier
from dkvb.embedding.datasets.bundled import load

X, y = load("cifar10", "train")
X, y = X[:1500], y[:1500]
customer = np.zeros(len(X), bool)
customer[::50] = True  # thirty photos belong to one customer
ids = np.array([f"{'c17' if own else 'other'}/{i}" for i, own in enumerate(customer)])

# %% [markdown]
# ## Learn everything, then unlearn by id
#
# `KernelClassifier` keeps embeddings. To unlearn is to delete.

# %%
learned = KernelClassifier().fit(X, y, ids=ids)
before = learned.predict_proba(X[customer])
learned.forget_samples(ids=ids[customer])
never = KernelClassifier().fit(X[~customer], y[~customer], ids=ids[~customer])
learned.tune()
print(learned.audit_)

# %% [markdown]
# ## Proof
#
# The learned state is equal to that of a model that never saw the customer, bit for bit.

# %%
ours, theirs = learned.state_arrays(), never.state_arrays()
assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
print(f"equal, bit for bit: {', '.join(ours)}")

# %% [markdown]
# The saved file holds no embedding of the customer, in the half precision in which embeddings are
# stored:

# %%
folder = Path(tempfile.mkdtemp())
learned.save(folder / "model.safetensors")
content = (folder / "model.safetensors").read_bytes()
kept = never.state_arrays()["halves"]
assert kept[0].tobytes() in content  # how a row that was kept looks in the file
full = KernelClassifier().fit(X, y, ids=ids).state_arrays()["halves"]
remaining = {row.tobytes() for row in kept}
gone = [row.tobytes() for row in full if row.tobytes() not in remaining]
found = sum(row in content for row in gone)
print(f"{found} of {len(gone)} unlearned embeddings are in the file")
assert len(gone) == customer.sum()
assert found == 0

# %% [markdown]
# ## Can one tell who was learned?
#
# A model is surer of what it learned. The probability of the customer's own labels drops to what
# a model gives that never saw the photos.

# %%
columns = np.searchsorted(learned.classes_, y[customer])
rows = np.arange(customer.sum())
stages = {
    "learned": before[rows, columns],
    "unlearned": learned.predict_proba(X[customer])[rows, columns],
    "never learned": never.predict_proba(X[customer])[rows, columns],
}
assert np.allclose(stages["unlearned"], stages["never learned"], atol=1e-4)
assert stages["learned"].mean() > stages["unlearned"].mean()

# %%
figure, axes = plt.subplots(figsize=(8, 4))
for i, values in enumerate(stages.values()):
    jitter = np.random.default_rng(0).uniform(-0.12, 0.12, len(values))
    axes.scatter(i + jitter, values, s=18, alpha=0.7, color=f"C{i}")
    axes.hlines(np.median(values), i - 0.25, i + 0.25, color="black")
axes.set_xticks(range(3), list(stages))
axes.set(ylabel="probability of the customer's label", ylim=(0, 1.02))
axes.set_title("Thirty photos of one customer; lines are medians")
figure.tight_layout()
