# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Compare methods on your own embeddings
#
# Any array of embeddings and any array of labels will do; here they are the handwritten digits of
# scikit-learn, 64 pixels each. Classes arrive two at a time. Methods of this package, baselines
# of the literature and a classifier of scikit-learn are trained on the same stream.

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from dkvb.estimators.registry import make_classifier
from dkvb.evaluation.plots import spread_labels
from dkvb.evaluation.runner import evaluate
from dkvb.evaluation.streams import class_incremental

X, y = load_digits(return_X_y=True)
X = X.astype(np.float32)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
stream = class_incremental(y_train, classes_per_task=2, seed=1)
print(f"{stream.name}: {[task.classes.tolist() for task in stream]}")

# %% [markdown]
# ## Methods
#
# A method is a function that returns a new classifier. Anything with `partial_fit` and `predict`
# can be compared.

# %%
METHODS = {
    "kernel": lambda: make_classifier("kernel"),
    "bottleneck": lambda: make_classifier("bottleneck", {"epochs": 20}, key_rows=X_train),
    "RanPAC": lambda: make_classifier("ranpac", {"n_features": 512}),
    "streaming LDA": lambda: make_classifier("slda"),
    "nearest class mean": lambda: make_classifier("prototypes"),
    "scikit-learn's SGD": lambda: SGDClassifier(random_state=0),
}

# %%
records = {
    name: evaluate(make, stream, (X_train, y_train), (X_test, y_test), memory=True, name=name)
    for name, make in METHODS.items()
}
for name, record in sorted(records.items(), key=lambda item: -item[1].metrics["final_accuracy"]):
    print(
        f"{name:20}{record.metrics['final_accuracy']:7.1%}"
        f"{record.metrics['memory_bytes'] / 1e3:10,.0f} kB{record.times['learn']:8.2f} s"
    )
final = {name: record.metrics["final_accuracy"] for name, record in records.items()}
assert final["kernel"] > 0.95
assert final["scikit-learn's SGD"] < 0.5  # it forgets

# %% [markdown]
# ## Picture
#
# Left: the accuracy on the digits seen so far. Right: what the accuracy costs in memory;
# scikit-learn's SGD, which forgets, lies below the panel.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
heights = spread_labels([100 * final[name] for name in records], gap=0.7)
for i, (name, record) in enumerate(records.items()):
    curve = [100 * point.seen_accuracy for point in record.curve]
    left.plot(range(1, len(curve) + 1), curve, marker="o", markersize=3, color=f"C{i}", label=name)
    if final[name] < 0.85:
        continue
    size, accuracy = record.metrics["memory_bytes"] / 1e3, 100 * final[name]
    right.scatter(size, accuracy, color=f"C{i}")
    right.annotate(f"  {name}", (size, heights[i]), color=f"C{i}", fontsize=9, va="center")
left.set(xlabel="tasks learned", ylabel="accuracy on the classes seen so far (%)", ylim=(0, 102))
left.set_xticks(range(1, 6))
left.legend(frameon=False, fontsize=9, loc="lower left")
right.set(xlabel="kilobytes kept", ylabel="final accuracy (%)", xscale="log", ylim=(88, 101))
_ = right.set_xlim(2, 2e6)
