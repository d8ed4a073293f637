import torch

from dkvb.evaluation.size import pickled_size


def test_memory_is_what_a_pickle_holds():
    table = torch.zeros(1000)
    assert 4000 <= pickled_size({"a": table}) < 5500
    assert pickled_size([table, table]) < 5500  # the same tensor twice is kept once
