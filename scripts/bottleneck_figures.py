"""Draw each step of the bottleneck on points in the plane: python scripts/bottleneck_figures.py

Writes docs/images/bottleneck-*.svg. All that is drawn was computed by the package: keys by
`fit_keys`, codes by `Keys.codes`, values by `BottleneckClassifier`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.spatial import Voronoi, voronoi_plot_2d
from sklearn.datasets import make_blobs

from dkvb import BottleneckClassifier, fit_keys

OUT = Path(__file__).parents[1] / "docs" / "images"
CENTRES = np.array([[-2.0, -1.5], [2.0, -1.5], [0.0, 2.0]])
COLOURS = np.array(["#3f51b5", "#e65100", "#00796b"])
POINT = np.array([[0.35, 1.1]])


def axes_of(count: int) -> tuple[Any, list[Any]]:
    figure = Figure(figsize=(3.6 * count, 3.5), layout="constrained")
    panels = [figure.add_subplot(1, count, i + 1) for i in range(count)]
    return figure, panels


def save(figure: Any, name: str) -> None:
    figure.savefig(OUT / f"bottleneck-{name}.svg", metadata={"Date": None})


def plain(axes: Any, title: str) -> None:
    axes.set(xticks=[], yticks=[], xlim=(-5, 5), ylim=(-5, 5))
    axes.set_title(title, fontsize="medium")


def main() -> None:
    if len(sys.argv) != 1:
        sys.exit("usage: python scripts/bottleneck_figures.py")
    matplotlib.rcParams["svg.hashsalt"] = "dkvb"
    X, y = make_blobs(240, centers=CENTRES, cluster_std=0.9, random_state=1)
    X = X.astype(np.float32)
    keys = fit_keys(
        X, n_codebooks=2, n_pairs=9, key_dim=2, epochs=20, random_state=3, conditioning=None,
        projection="gaussian",
    )  # fmt: skip
    heads = np.asarray(keys.heads(X))  # (n, C, d)
    codes = np.asarray(keys.codes(X)).reshape(len(X), -1)  # (n, C)
    places = np.asarray(keys.keys)  # (C, K, d)
    point_heads = np.asarray(keys.heads(POINT.astype(np.float32)))[0]
    point_codes = np.asarray(keys.codes(POINT.astype(np.float32))).reshape(-1)

    figure, (axes,) = axes_of(1)
    axes.scatter(*X.T, s=8, color="0.6")
    axes.plot(*POINT[0], "*", color="black", markersize=13)
    plain(axes, "embeddings; the star is the input")
    save(figure, "1-embeddings")

    figure, panels = axes_of(2)
    for c, axes in enumerate(panels):
        axes.scatter(*heads[:, c].T, s=8, color="0.6")
        axes.plot(*point_heads[c], "*", color="black", markersize=13)
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"head {c + 1}", fontsize="medium")
    save(figure, "2-heads")

    limits = [(axes.get_xlim(), axes.get_ylim()) for axes in panels]
    figure, panels = axes_of(2)
    for c, axes in enumerate(panels):
        voronoi_plot_2d(Voronoi(places[c]), axes, show_vertices=False, show_points=False,
                        line_colors="0.8")  # fmt: skip
        axes.scatter(*heads[:, c].T, s=6, color="0.75")
        axes.plot(*places[c].T, "D", color="#3949ab", markersize=6)
        chosen = places[c, point_codes[c]]
        axes.plot(*zip(point_heads[c], chosen, strict=True), color="black", lw=1)
        axes.plot(*chosen, "D", color="#d81b60", markersize=9)
        axes.plot(*point_heads[c], "*", color="black", markersize=13)
        axes.set(xticks=[], yticks=[], xlim=limits[c][0], ylim=limits[c][1])
        title = f"codebook {c + 1}: code {point_codes[c]}"
        axes.set_title(title, fontsize="medium")
    save(figure, "3-keys")

    clf = BottleneckClassifier(keys, epochs=20, learning_rate=3.0).fit(X, y)
    figure, panels = axes_of(3)
    counts = np.zeros((2, 9, 3), int)
    for c in range(2):
        np.add.at(counts[c], (codes[:, c], y), 1)
        bars = counts[c, point_codes[c]]
        panels[c].bar(range(3), bars, color=COLOURS)
        panels[c].set_title(f"value of key {point_codes[c]}, codebook {c + 1}", fontsize="medium")
        panels[c].set_ylabel("learned examples")
    panels[2].bar(range(3), clf.predict_proba(POINT.astype(np.float32))[0], color=COLOURS)
    panels[2].set_title("pooled: probabilities", fontsize="medium")
    panels[2].set_ylim(0, 1)
    for axes in panels:
        axes.set_xticks(range(3), ["A", "B", "C"])
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "4-values")

    figure, panels = axes_of(2)
    for axes, known, title in zip(
        panels, (y < 2, y < 3), ("after A and B", "after C: other values changed"), strict=True
    ):
        table = np.zeros((9, 3), int)
        np.add.at(table, (codes[known, 0], y[known]), 1)
        bottom = np.zeros(9)
        for label in range(3):
            axes.bar(range(9), table[:, label], bottom=bottom, color=COLOURS[label])
            bottom += table[:, label]
        axes.set_title(title, fontsize="medium")
        axes.set(xlabel="key of codebook 1", ylabel="learned examples", ylim=(0, 60))
        axes.set_xticks(range(9))
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, "5-learning")


if __name__ == "__main__":
    main()
