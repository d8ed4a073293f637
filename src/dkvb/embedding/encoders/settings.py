"""What is taken of an encoder besides its plain embedding: layers, pooling, views, cropping.

Settings stand after the encoder's name, `NAME:key=value,...`, as those of classifiers do. The full
name is what embedding files and models record, so that every later command embeds in the same way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dkvb._support import validation

KINDS = ("image", "text", "vector")  # of items that encoders take
LAYERS = ("last", "stage1", "stage2", "stage3", "stage4")
POOLINGS = ("mean", "map")
PLAIN, FLIP = "plain", "flip"
VIEWS = (PLAIN, FLIP)
CROPS = ("centre", "none")

_SETTINGS = re.compile(
    r":((?:layers|pooling|views|crop)=[\w+]*(?:,(?:layers|pooling|views|crop)=[\w+]*)*)"
)


class Settings(NamedTuple):
    """Settings of an encoder; None where the encoder's own default holds."""

    layers: tuple[str, ...] | None = None
    pooling: str | None = None
    views: str | None = None
    crop: str | None = None

    def checked(self) -> Settings:
        """Return the settings, or raise for a value that no encoder knows."""
        if self.layers is not None:
            for layer in self.layers or ("",):
                validation.one_of("layers", layer, LAYERS)
            if len(set(self.layers)) != len(self.layers):
                raise ValueError(
                    f"layers: expected each layer once; got {','.join(self.layers)}; leave out the "
                    "repeated one"
                )
        for name, options in (("pooling", POOLINGS), ("views", VIEWS), ("crop", CROPS)):
            validation.one_of(name, getattr(self, name), (None, *options))
        return self

    def merged(self, other: Settings) -> Settings:
        """Return these settings with those of `other` in the places that are None."""
        for name, mine, theirs in zip(self._fields, self, other, strict=True):
            if mine is not None and theirs is not None and mine != theirs:
                raise ValueError(
                    f"{name}: expected one value; got {_text(mine)} in the encoder's name and "
                    f"{_text(theirs)} beside it; give one of them"
                )
        more = {name: value for name, value in other._asdict().items() if value is not None}
        return self._replace(**more)

    def suffix(self, layer: str = "last") -> str:
        """Return what follows the name: settings that are not the default, in a fixed order.

        >>> Settings(("last", "stage3"), "mean", "flip").suffix()
        ':layers=last+stage3,views=flip'
        """
        usual = Settings((layer,), POOLINGS[0], PLAIN, CROPS[0])
        given = [
            f"{name}={_text(value)}"
            for name, value, default in zip(self._fields, self, usual, strict=True)
            if value is not None and value != default
        ]
        return f":{','.join(given)}" if given else ""


def split_name(name: str) -> tuple[str, Settings]:
    """Return the name without settings, and the settings, checked.

    >>> split_name("timm:resnet18:layers=last+stage3")
    ('timm:resnet18', Settings(layers=('last', 'stage3'), pooling=None, views=None, crop=None))
    """
    found = _SETTINGS.search(name)
    if found is None or found.end() != len(name):
        return name, Settings()
    given: dict[str, Any] = dict(one.split("=") for one in found[1].split(","))
    if "layers" in given:
        given["layers"] = tuple(given["layers"].split("+"))
    return name[: found.start()], Settings(**given).checked()


def as_layers(layers: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return layers from a list, or from a text with commas.

    >>> as_layers("last,stage3")
    ('last', 'stage3')
    """
    if layers is None:
        return None
    parts = layers.split(",") if isinstance(layers, str) else layers
    return tuple(part.strip() for part in parts)


def _text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else "+".join(value)


def encoder_fingerprint(identity: Mapping[str, Any]) -> str:
    """What tells an encoder from others of its name: a hash of its weights and settings.

    Its precision is no part of it, since rows from a GPU and from a CPU go together.

    >>> cpu, gpu = ({"weights": "a1", "precision": p} for p in ("float32", "float16"))
    >>> encoder_fingerprint(cpu) == encoder_fingerprint(gpu)
    True
    >>> encoder_fingerprint(cpu) == encoder_fingerprint({"weights": "b2"})
    False
    """
    settled = {name: value for name, value in identity.items() if name != "precision"}
    canonical = json.dumps(settled, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
