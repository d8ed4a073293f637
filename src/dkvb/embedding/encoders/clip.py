"""CLIP's image tower, by open_clip."""

from __future__ import annotations

from dkvb._support.optional import require
from dkvb.embedding.encoders.encoder import EncoderSpec, ModuleEncoder
from dkvb.embedding.encoders.transforms import ImageTransform
from dkvb.embedding.encoders.weights import download, load_into, read_state

_MODEL = "ViT-B-32-quickgelu"  # OpenAI's weights were trained with the quick GELU
_TEXT = (
    "transformer.", "token_embedding.", "positional_embedding", "ln_final.", "text_projection",
    "attn_mask", "logit_", "input_resolution", "context_length", "vocab_size",
)  # fmt: skip


def build(spec: EncoderSpec) -> ModuleEncoder:
    """CLIP ViT-B/32: the projected image embedding, not normalised."""
    name, weights, layers, pooling = spec[:4]
    if (layers, pooling) != (("last",), "mean"):
        raise ValueError(
            f"layers, pooling: expected last and mean for {name}; got {','.join(layers)} and "
            f"{pooling}"
        )
    library = require("open_clip", "clip", f"encoder {name}")
    if weights is None:
        model = download(lambda: library.create_model(_MODEL, pretrained="openai"), spec)
    else:
        model = library.create_model(_MODEL, pretrained=None)
        # OpenAI publishes TorchScript.
        load_into(model, read_state(weights, scripted=True), name, unused=_TEXT)
    return ModuleEncoder(
        name,
        model.visual,
        model.visual,
        ImageTransform(224, 224, mean=library.OPENAI_DATASET_MEAN, std=library.OPENAI_DATASET_STD),
        identity={"name": name},
        views=spec.views,
        device=spec.device,
        precision=spec.precision,
    )
