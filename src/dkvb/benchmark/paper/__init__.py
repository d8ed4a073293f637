"""The paper's figures and tables: one module per experiment, built on the public API."""

from importlib import import_module
from typing import Any

EXPERIMENTS: dict[str, str] = {
    "toy": "Figure 2: eight classes in the plane, two at a time",
    "cifar10": "Figure 3: CIFAR-10 in 5 tasks; bottleneck, linear probe, MLP, SDMLP",
    "loss": "Figure 3b: train and test loss along the stream, class-incremental and iid",
    "key-dim": "Figure 4a: the dimension of keys",
    "pairs": "Figure 4b: the number of key-value pairs",
    "codebooks": "Figure 4c: the number of codebooks",
    "key-data": "Figure 4d: the data that keys are fitted to",
    "label-smoothing": "appendix C: label smoothing",
    "granularity": "appendix D.1: 10 × 1, 5 × 2 and 2 × 5 classes",
    "fly": "appendix D.2: the FlyModel over epochs",
    "weight-decay": "appendix D.3: linear probe and MLP with weight decay",
    "cifar100": "appendix D.4: CIFAR-100 in 50 tasks, keys from CIFAR-10",
    "imagenet": "appendix D.4: ImageNet in 500 tasks, keys from CIFAR-100",
    "noise": "appendix E.1: noise on pixels and on embeddings",
    "values": "Table 1: values learned class-incrementally against iid",
    "codes": "appendix E.3: maps of keys, how often pairs are used, how many classes share them",
    "decoders": "section 6: parametric decoders, iid and class-incremental",
    "straight-through": "section 6: gradients into keys and projection",
    "theorem": "Theorem 1 and appendix B: estimates of its terms",
    "all-methods": "beyond the paper: every classifier and rule, with learning time and memory",
}


def load_experiment(name: str) -> Any:
    """Import and return the module of an experiment."""
    return import_module(f"dkvb.benchmark.paper.{name.replace('-', '_')}")
