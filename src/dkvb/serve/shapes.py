"""The JSON of answers and of small bodies, as OpenAPI documents it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dkvb.serve.inputs import Label, RowId
from dkvb.serve.problems import MEDIA_TYPE


class Body(BaseModel):
    """A body in JSON; a name that is not known is an error."""

    model_config = ConfigDict(extra="forbid")


# --------------------------------------------------------------------------------------- requests
class Forget(Body):
    """What to forget: give exactly one of classes, ids and source, or rows with their labels."""

    classes: list[Label] | None = Field(None, description="Classes to forget.")
    ids: list[RowId] | None = Field(None, description="Rows to forget, by their ids.")
    source: str | None = Field(None, description="Forget all rows of this source.")
    embeddings: list[list[float]] | None = Field(None, description="Rows to forget, as learned.")
    labels: list[Label] | None = Field(None, description="The labels of these embeddings.")
    confirm: bool = Field(False, description="Must be true: forgetting is final.")


class Rename(Body):
    """A class gets another name."""

    label: Label
    new_label: Label


class Merge(Body):
    """Several classes become one, of a new name or of one of theirs."""

    labels: list[Label] = Field(min_length=1)
    into: Label


class Undo(Body):
    """Undo the last learn, relabel, rename or merge."""

    sequence: int | None = Field(
        None, description="Undo only if the last operation still has this sequence number."
    )


# ---------------------------------------------------------------------------------------- answers
class ProblemDetails(BaseModel):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class Ranked(BaseModel):
    """A class and its probability."""

    label: Label
    probability: float


class Influence(BaseModel):
    """A learned example that decided."""

    id: RowId | None
    label: Label
    share: float
    similarity: float
    image: bool


class KeyVote(BaseModel):
    """A key that decided."""

    codebook: int
    pair: int
    label: Label
    lead: float
    examples: int | None


class Why(BaseModel):
    """The learned examples, or the keys, that decided; the strongest first."""

    examples: list[Influence] | None = None
    keys: list[KeyVote] | None = None


class Prediction(BaseModel):
    """What the model says of one row."""

    label: Label
    probability: float | None = None
    runner_up: Label | None = None
    runner_up_probability: float | None = None
    novelty: float | None = None
    top: list[Ranked] | None = None
    prediction_id: str | None = None
    why: Why | None = None


class Predictions(BaseModel):
    """One prediction per row."""

    model: str
    sequence: int
    predictions: list[Prediction]


class Acknowledged(BaseModel):
    """A change that is on disk."""

    operation: str
    count: int = Field(description="Rows.")
    sequence: int
    operation_id: str
    repeated: bool = Field(description="Whether the change was on disk before this request.")
    classes: int
    ids: list[RowId] | None = Field(None, description="Ids of learned rows, where they are kept.")


class ClassCount(BaseModel):
    """A class and its learned rows."""

    label: Label
    count: int | None


class Classes(BaseModel):
    """All classes, sorted."""

    sequence: int
    rows: int
    kind: str | None = Field(description="string, number or boolean; null before the first label")
    classes: list[ClassCount]


class ClassAccuracy(ClassCount):
    """A class, its rows and its accuracy."""

    accuracy: float | None


class Point(BaseModel):
    """Of the curve of running accuracy."""

    scored: int
    accuracy: float


class PrequentialAccuracy(BaseModel):
    """Accuracy on rows that were predicted before they were learned, since the service started."""

    scored: int
    accuracy: float | None
    recent_accuracy: float | None
    recent_rows: int
    curve: list[Point]


class Quality(BaseModel):
    """How good the model is."""

    sequence: int
    kind: str | None = Field(description="leave-one-out, held-out, ...; null: not known")
    accuracy: float | None
    rows: int
    classes: list[ClassAccuracy]
    confusion: list[list[int]] | None = Field(description="Rows: labels; columns: predictions.")
    prequential: PrequentialAccuracy
    note: str | None = None


class Suspect(BaseModel):
    """A learned row whose label the others contradict."""

    id: RowId | None
    label: Label
    predicted: Label
    probability: float
    image: bool


class Suspects(BaseModel):
    """The clearest first."""

    sequence: int
    suspects: list[Suspect]


class Suggestion(BaseModel):
    """A row to label next."""

    row: int = Field(description="Position among the rows that were sent, or that are remembered.")
    prediction_id: str | None
    label: Label
    probability: float | None
    novelty: float | None


class Suggestions(BaseModel):
    """The most useful first."""

    sequence: int
    suggestions: list[Suggestion]


class LearnedRow(BaseModel):
    """A row that the model keeps."""

    id: RowId | None
    label: Label
    image: bool


class LearnedRows(BaseModel):
    """Rows that the model keeps; next is the value of start for those after these."""

    sequence: int
    total: int
    rows: list[LearnedRow]
    next: int | None


class HistoryEntry(BaseModel):
    """One operation."""

    sequence: int | None
    operation: str
    count: int
    time: str
    operation_id: str | None


class History(BaseModel):
    """Operations, the oldest first; never labels or rows."""

    history: list[HistoryEntry]


class Undoable(BaseModel):
    """The operation that undo would undo."""

    operation: str
    count: int
    sequence: int | None


class ModelFacts(BaseModel):
    """What the service serves."""

    name: str
    version: str
    sequence: int
    classifier: str
    encoder: str | None
    takes: str | None = Field(description="image or text, where there is an encoder")
    width: int | None
    classes: int
    rows: int
    keeps_ids: bool = Field(description="Whether rows have ids, to be forgotten or relabelled by")
    keeps_images: bool
    undo: Undoable | None
    limits: dict[str, float]


class Health(BaseModel):
    """That the service is there; the names are Label Studio's."""

    status: str
    model_class: str


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of errors."""
    content = {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}}
    usual = (400, 401, 403, 405, 408, 413, 415, 422, 503)
    return {
        status: {"description": "A problem.", "content": content} for status in (*usual, *statuses)
    }
