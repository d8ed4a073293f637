"""The learned examples, or the keys, that decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dkvb.serve.problems import Problem

if TYPE_CHECKING:
    from dkvb.serve.service import Service

MOST = 8  # examples or keys per row


def why(service: Service, X: Any) -> list[dict[str, Any]]:
    """Return one explanation per row of X (n, m)."""
    classifier = service.model.classifier
    if not hasattr(classifier, "explain"):
        raise Problem(
            409,
            f"explain: expected a classifier that can say what decided; {type(classifier).__name__}"
            " cannot; ask without explain",
        )
    return [_reason(service, classifier.explain(row)) for row in X]


def _reason(service: Service, found: Any) -> dict[str, Any]:
    if hasattr(found, "influences"):
        return {
            "examples": [
                {
                    "id": one.id,
                    "label": one.label,
                    "share": one.share,
                    "similarity": one.similarity,
                    "image": has_image(service, one.id),
                }
                for one in found.influences[:MOST]
            ]
        }
    votes = found.votes(most=MOST)
    names = ("codebook", "pair", "label", "lead", "selected")
    return {"keys": [{name: getattr(vote, name) for name in names} for vote in votes]}


def has_image(service: Service, own: Any) -> bool:
    """Return whether there is a picture of a learned row."""
    return own is not None and service.thumbnails is not None and own in service.thumbnails
