"""The search for λ on a grid, with few looks at the error of each."""

from __future__ import annotations

from collections.abc import Callable

DECADE = 4  # steps of the grid
FIRST = 8  # place of the grid where the search starts: 0.1


def select_lambda(error: Callable[[int], float], n: int, tolerance: float) -> int:
    """The last of n places whose error is within `tolerance` of the lowest, with few looks at it.

    The error falls and then rises from place to place, slowly: its lowest value is looked for in
    wide steps and once more at the vertex of the parabola there, the border by halving. Looks at
    about six places.
    """
    seen: dict[int, float] = {}

    def evaluate_at(place: int) -> float:
        if place not in seen:
            seen[place] = error(place)
        return seen[place]

    best = min(FIRST, n - 1)
    while True:
        near = [min(best + DECADE, n - 1), max(best - DECADE, 0)]
        lower = next((place for place in near if evaluate_at(place) < evaluate_at(best)), None)
        if lower is None:
            break
        best = lower
    if near == [best + DECADE, best - DECADE]:
        after, before = (evaluate_at(place) - evaluate_at(best) for place in near)
        if after + before > 0:
            evaluate_at(best + round(DECADE / 2 * (before - after) / (before + after)))
    while True:
        limit = min(seen.values()) * (1 + tolerance)
        inside = max(place for place, value in seen.items() if value <= limit)
        outside = min((place for place in seen if place > inside), default=None)
        if inside == n - 1 or outside == inside + 1:
            return inside
        evaluate_at(min(inside + DECADE, n - 1) if outside is None else (inside + outside) // 2)
