"""The paper's figures and tables: a module per experiment, and a table of one-parameter sweeps.

An experiment has `TITLE`, the configurations `PAPER` and `QUICK` (one frozen dataclass), and three
functions: `make_jobs(setup)` returns its runs, `make_table(records)` the rows of its table, and
`plot(records, path, title)` draws its figure. The last two read records only.
"""

from importlib import import_module
from typing import Any

EXPERIMENTS: dict[str, str] = {
    "toy": "Figure 2: eight classes in the plane, two at a time",
    "cifar10": "Figure 3: CIFAR-10 in 5 tasks; bottleneck, linear probe, MLP, SDMLP",
    "loss": "Figure 4: train and test loss along the stream, class-incremental and iid",
    "key-dim": "Figure 5a: the dimension of keys",
    "pairs": "Figure 5b: the number of key-value pairs",
    "codebooks": "Figure 5c: the number of codebooks",
    "key-data": "Figure 5d: the data that keys are fitted to",
    "label-smoothing": "appendix C: label smoothing",
    "granularity": "appendix D.1, Figure 6: 10 × 1, 5 × 2 and 2 × 5 classes",
    "fly": "appendix D.2, Figure 7: the FlyModel over epochs",
    "weight-decay": "appendix D.3, Figures 8 and 9: linear probe and MLP with weight decay",
    "cifar100": "appendix D.4, Figure 10: CIFAR-100 in 50 tasks, keys from CIFAR-10; SDMLP",
    "imagenet": "appendix D.4, Figure 11: ImageNet in 500 tasks, keys from CIFAR-100",
    "noise": "appendix E.1, Figure 12: noise on images and on embeddings",
    "values": "appendix E.2, Table 1: values learned class-incrementally against iid",
    "codes": "appendix E.3, Figures 13 to 17: maps of keys, how often pairs are used, sharing",
    "decoders": "section 6: parametric decoders, iid and class-incremental",
    "straight-through": "section 6: gradients into keys and projection",
    "shift-signal": "section 6: the distance from keys as a signal of distribution shift",
    "growth": "section 6: pairs added when the distribution shifts",
    "refit": "section 6: keys fitted further on unlabelled rows, values keep their keys",
    "generation": "section 6: a pre-trained generative decoder",
    "theorem": "Theorem 1 and appendix B: estimates of its terms",
    "all-methods": "beyond the paper: every classifier, with learning time and memory",
}


def load_experiment(name: str) -> Any:
    """Return an experiment: its module, or its line in the table of sweeps."""
    from paper.experiments.sweeps import SWEEPS

    return SWEEPS.get(name) or import_module(f"paper.experiments.{name.replace('-', '_')}")
