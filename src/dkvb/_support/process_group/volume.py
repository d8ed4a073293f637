"""How many bytes each process sends, computed from shapes alone.

C codebooks of K pairs, key dimension d, Y classes, batches of B, M = C·K features. Bytes are
counted once per process; on the wire a ring of N processes sends 2 (N − 1)/N of a sum from each,
and (N − 1) copies of what is gathered.
"""

from __future__ import annotations


def lloyd_pass(C: int, K: int, d: int) -> int:
    """A pass of Lloyd's algorithm: counts in int64, sums in float64, and the rows that stand in for
    keys without any, in float32."""
    return C * K * (8 + 8 * d + 4 * d)


def ema_exchange(n_own: int, other_codebooks: int, d: int) -> int:
    """Moving averages, once for all epochs: the heads of own rows in codebooks of others."""
    return n_own * other_codebooks * d * 4


def counts_lists(longest: int, kept: int, C: int) -> int:
    """Counts as lists, of which the longest has so many entries, and so many kept rows."""
    return 12 * longest + kept_rows(kept, C)


def counts_table(C: int, K: int, present: int) -> int:
    """Counts as a table of the classes present, in int32."""
    return 4 * C * K * present


def kept_rows(kept: int, C: int) -> int:
    """Codes, in 16 bits, and labels of the rows that are kept for calibration, the most of any
    process."""
    return kept * (2 * C + 8)


def sketch_cells(cells: int, C: int) -> int:
    """The sketch of these rows where they are many, the most cells of any process."""
    return cells * (4 * C + 24)


def least_squares(M: int, Y: int, stripe: int = 512) -> int:
    """All sums, twice: of rows learned from and of those held out."""
    gram = sum(min(stripe, M - a) * (M - a) for a in range(0, M, stripe))
    return 2 * 8 * (gram + M * Y + 2 * Y) + 8 * M


def sgd_step(B: int, Y: int) -> int:
    """A step with codebooks in several processes: the sums that a batch reads, in float32.

    Where classes were not declared, Y counts the column for those to come.
    """
    return 4 * B * Y
