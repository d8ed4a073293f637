"""Encoders and key data of the experiments: the one list of their names."""

from __future__ import annotations

from typing import NamedTuple

from dkvb._support import validation


class ExperimentEncoder(NamedTuple):
    """An encoder, how the paper shows it, and the data that its keys are fitted to."""

    name: str  # of `dkvb embed`, and in file names
    title: str
    paper_name: str = ""  # in `targets`; empty: not in the paper
    panel: str = ""  # of the paper's Figure 3
    keys: str = "cifar100"  # for CIFAR-10 experiments
    note: str = ""  # on the embeddings that this repository's records are of


ENCODERS = (
    ExperimentEncoder(
        "resnet50",
        "ResNet50",
        "resnet50",
        "b",
        note="Keras weights of ImageNet; the paper's are torchvision's. All 50,000 training and "
        "10,000 test images.",
    ),
    ExperimentEncoder("clip_vit_b32", "CLIP ViT-B/32", "clip", "c"),
    ExperimentEncoder("swav_resnet50w2", "SwAV ResNet50w2", "swav", "d"),
    ExperimentEncoder("dino_resnet50", "DINO ResNet50", "dino", "e"),
    ExperimentEncoder("convmixer", "ConvMixer", "convmixer", "a", keys="imagenet32"),
    ExperimentEncoder(
        "efficientnet_lite0",
        "EfficientNet-Lite0",
        note="Not in the paper. The first 15,000 training and 4,000 test images; keys from 8,000 "
        "images of CIFAR-100.",
    ),
    ExperimentEncoder(
        "mobilenet_v2",
        "MobileNetV2",
        keys="cifar10_heldout",
        note="Not in the paper. The first 15,000 training and 4,000 test images; keys from 8,000 "
        "unlabelled CIFAR-10 training images that are used for nothing else.",
    ),
)

DEFAULT_KEYS = {"cifar100": "cifar10", "imagenet": "cifar100"}  # by target; CIFAR-10: by encoder
_ONE_EPOCH = ("imagenet", "imagenet32")  # appendix C: one epoch on the ImageNet data sets
KEY_EPOCHS = 10


class KeyData(NamedTuple):
    """The data set that keys are fitted to, and for how many epochs."""

    dataset: str
    epochs: int


def find_encoder(name: str) -> ExperimentEncoder | None:
    """Return the encoder with a name or a name of the paper, or None.

    >>> find_encoder("clip").name, find_encoder("clip_vit_b32").name, find_encoder("abacus")
    ('clip_vit_b32', 'clip_vit_b32', None)
    """
    known = (encoder for encoder in ENCODERS if name and name in (encoder.name, encoder.paper_name))
    return next(known, None)


def canonical_name(name: str) -> str:
    """Return the name of an encoder in file names; unknown names stay.

    >>> canonical_name("dino"), canonical_name("timm:resnet18")
    ('dino_resnet50', 'timm:resnet18')
    """
    known = find_encoder(name)
    return known.name if known else name


def default_keys(encoder: str, target: str) -> str:
    """Return the data set that the paper fits keys to.

    >>> default_keys("resnet50", "cifar10"), default_keys("convmixer", "cifar10")
    ('cifar100', 'imagenet32')
    """
    known = find_encoder(encoder)
    return DEFAULT_KEYS.get(target) or (known.keys if known else "cifar100")


def key_epochs(dataset: str) -> int:
    """Return the paper's epochs of key initialisation on a data set.

    >>> key_epochs("cifar100"), key_epochs("imagenet32")
    (10, 1)
    """
    return 1 if dataset in _ONE_EPOCH else KEY_EPOCHS


def parse_keys(text: str) -> KeyData:
    """Parse `DATASET` or `DATASET:EPOCHS`.

    >>> parse_keys("imagenet32"), parse_keys("stl10:3")
    (KeyData(dataset='imagenet32', epochs=1), KeyData(dataset='stl10', epochs=3))
    """
    dataset, colon, epochs = text.partition(":")
    if not dataset or (colon and not epochs.isdecimal()):
        raise ValueError(f"--keys: expected DATASET or DATASET:EPOCHS; got {text!r}")
    if not colon:
        return KeyData(dataset, key_epochs(dataset))
    return KeyData(dataset, validation.positive_int("--keys, epochs", int(epochs)))


def is_of_the_paper(name: str) -> bool:
    """Return whether the paper has results with an encoder; points in the plane have none.

    >>> is_of_the_paper("resnet50"), is_of_the_paper("mobilenet_v2"), is_of_the_paper("")
    (True, False, True)
    """
    known = find_encoder(name)
    return not name or bool(known and known.paper_name)
