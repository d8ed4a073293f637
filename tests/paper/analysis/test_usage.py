import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from paper.analysis.usage import count_in_bins, count_selections, count_sharing_classes


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4), st.integers(1, 6))
def test_counts_agree_with_counting_by_hand(seed, n, books, pairs):
    rng = np.random.default_rng(seed)
    codes, columns = rng.integers(pairs, size=(n, books)), rng.integers(3, size=n)
    counts = count_selections(torch.from_numpy(codes).to(torch.uint16), pairs)
    sharing = count_sharing_classes(torch.from_numpy(codes), torch.from_numpy(columns), pairs, 3)
    for book in range(books):
        for pair in range(pairs):
            own = codes[:, book] == pair
            assert counts[book, pair] == own.sum()
            assert sharing[book, pair] == len(set(columns[own]))


def test_every_count_lies_in_one_bin():
    counts = torch.arange(20).view(4, 5)
    assert count_in_bins(counts, [0, 1, 10]) == [1, 9, 10]
    assert count_in_bins(counts, [5, 10]) == [5, 10]  # below the first edge is nowhere
