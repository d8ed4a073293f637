"""The bottleneck as a module: what learns, what does not, and what is kept."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from dkvb import KeyValueBottleneck, fit_keys

GRADIENTS = ["values", "straight-through", "gumbel"]


@pytest.fixture(autouse=True)
def one_thread():
    """Tiny tensors: a backward pass would wait for threads longer than it computes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def keys():
    X = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)
    return fit_keys(X, preset="paper", n_codebooks=5, n_pairs=16, key_dim=3, epochs=2)


@pytest.fixture
def X():
    torch.manual_seed(0)
    return torch.randn(60, 8)


@pytest.fixture
def y():
    return torch.arange(60) % 4


def train(model, X, y, steps=3, lr=1.0):
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimiser.zero_grad()
        cross_entropy(model(X), y).backward()
        optimiser.step()


def test_autograd_reaches_values_and_decoder_alone(keys, X, y):
    model = KeyValueBottleneck(keys, 4, value_dim=6, decoder="linear", value_start="normal")
    names = {name for name, _ in model.named_parameters()}
    assert names == {"values", "decoder.1.weight", "decoder.1.bias"}
    buffers = dict(model.named_buffers())
    assert set(buffers) == {"centre", "projection", "keys", "usage"}
    cross_entropy(model(X), y).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert not any(buffer.requires_grad for buffer in buffers.values())


def test_the_mean_is_that_of_the_values_fetched(keys, X):
    model = KeyValueBottleneck(keys, 4, value_start="normal")
    codes = keys.codes(X).long()
    expected = model.values[torch.arange(5), codes].mean(dim=1)
    torch.testing.assert_close(model(X), expected)
    torch.testing.assert_close(model.forward_codes(codes), expected)
    torch.testing.assert_close(model(X.double()), expected)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_step_lowers_the_loss(gradient, keys, X, y):
    model = KeyValueBottleneck(keys, 4, gradient=gradient, value_start="normal")
    before = cross_entropy(model.eval()(X), y)
    train(model.train(), X, y, steps=4)
    assert cross_entropy(model.eval()(X), y) < before


def test_training_leaves_keys_bit_for_bit(keys, X, y):
    fingerprint = keys.fingerprint
    own = keys.keys.clone()
    model = KeyValueBottleneck(keys, 4, decoder="mlp", value_dim=3)
    train(model, X, y)
    assert model.frozen_keys().fingerprint == fingerprint
    assert torch.equal(model.keys, own)
    assert torch.equal(keys.keys, own)
    assert model.frozen_keys() is model.frozen_keys()


@pytest.mark.parametrize("gradient", GRADIENTS[1:])
def test_estimators_reach_keys_and_projection(gradient, keys, X, y):
    model = KeyValueBottleneck(keys, 4, gradient=gradient, value_start="normal", seed=2)
    assert {name for name, _ in model.named_parameters()} == {"values", "keys", "projection"}
    train(model, X, y, lr=10.0)
    moved = model.frozen_keys()
    assert not torch.equal(moved.keys, keys.keys)
    assert not torch.equal(moved.projection.matrices, keys.projection.matrices)
    # What was handed out before is immutable, and the model's codes are those of its keys now.
    own = moved.keys.clone()
    train(model, X, y, lr=10.0)
    assert torch.equal(moved.keys, own)
    assert model.frozen_keys().fingerprint != moved.fingerprint
    codes = model.frozen_keys().codes(X).long()
    torch.testing.assert_close(model.eval()(X), model.forward_codes(codes))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_usage_counts_each_training_row_once(gradient, keys, X, y):
    model = KeyValueBottleneck(keys, 4, gradient=gradient, value_start="normal")
    model.eval()(X)
    assert not model.usage.any()
    cross_entropy(model.train()(X), y).backward()
    assert model.usage.sum(dim=1).tolist() == [60] * 5
    if gradient == "values":
        codes = keys.codes(X)[:, 2].long()
        assert torch.equal(model.usage[2], torch.bincount(codes, minlength=16))


def test_the_straight_through_gradient_by_hand(keys, X):
    """Forward the nearest key's value, backward the softmax over distances."""
    model = KeyValueBottleneck(keys, 4, gradient="straight-through", value_start="normal")
    model(X).square().sum().backward()
    own = keys.keys.clone().requires_grad_()
    heads = keys.heads(X).float()
    values = model.values.detach()
    codes = keys.codes(X).long()
    fetched = []
    for book in range(5):
        squared = (heads[:, book, None] - own[book]).square().sum(2)
        weights = (-squared / squared.detach().amin(1).mean()).softmax(1)
        hard = torch.nn.functional.one_hot(codes[:, book], 16).float()
        fetched.append((hard + weights - weights.detach()) @ values[book])
    torch.stack(fetched, 1).mean(1).square().sum().backward()
    torch.testing.assert_close(model.keys.grad, own.grad, rtol=1e-3, atol=1e-6)


def test_the_sample_is_the_same_forward_and_backward(keys, X):
    """The value's gradient must arrive at the pairs that were sampled, draw after draw."""
    model = KeyValueBottleneck(keys, 4, gradient="gumbel", temperature=5.0)
    samples = []
    for _ in range(3):
        before = model.usage.clone()
        model.values.grad = None
        model(X).sum().backward()
        chosen = model.usage - before
        torch.testing.assert_close(model.values.grad[..., 0], chosen / 5.0)
        samples.append(chosen)
    assert not torch.equal(samples[0], samples[1])
    nearest = torch.stack([torch.bincount(c, minlength=16) for c in keys.codes(X).long().T])
    assert not torch.equal(samples[0], nearest)
    twin = KeyValueBottleneck(keys, 4, gradient="gumbel", temperature=5.0)
    twin(X)
    assert torch.equal(twin.usage, samples[0])


@pytest.mark.parametrize(
    ("decoder", "gradient"),
    [("mean", "values"), ("mlp", "values"), ("linear", "straight-through"), ("mean", "gumbel")],
)
def test_state_round_trips_into_a_model_of_other_keys(decoder, gradient, keys, X, y):
    model = KeyValueBottleneck(keys, 4, decoder=decoder, gradient=gradient, value_start="normal")
    train(model, X, y)
    other_keys = fit_keys(
        2 * X, preset="paper", n_codebooks=5, n_pairs=16, key_dim=3, epochs=1, random_state=9
    )
    other = KeyValueBottleneck(other_keys, 4, decoder=decoder, gradient=gradient)
    before = other.eval()(X)
    other.load_state_dict(model.state_dict())
    assert all(torch.equal(a, other.state_dict()[name]) for name, a in model.state_dict().items())
    assert torch.equal(other(X), model.eval()(X))
    assert not torch.equal(other(X), before)
    assert other.frozen_keys().fingerprint != other_keys.fingerprint


def test_copies_share_nothing_that_learns(keys, X, y):
    model = KeyValueBottleneck(keys, 4)
    before = model.eval()(X)
    twin = copy.deepcopy(model).train()
    train(twin, X, y)
    assert torch.equal(model(X), before)
    assert not torch.equal(twin.eval()(X), before)


@pytest.mark.parametrize("decoder", ["mean", "linear"])
def test_pruning_keeps_predictions_where_training_was(decoder, keys, X, y):
    model = KeyValueBottleneck(keys, 4, decoder=decoder, value_start="normal")
    train(model, X[:9], y[:9])
    model.eval()
    whole, usage = model(X[:9]), model.usage.clone()
    pruned = model.prune()
    K = int((usage > 0).sum(dim=1).max())
    assert pruned.keys.shape == (5, K, 3)
    assert K <= 9
    assert pruned.values.shape[1] == K
    assert not pruned.training
    torch.testing.assert_close(pruned(X[:9]), whole, rtol=0, atol=0)
    assert torch.equal(pruned.usage.sum(dim=1), usage.sum(dim=1))
    # Elsewhere it searches among the keys that training selected.
    codes = keys.codes(X, active=usage > 0).long()
    torch.testing.assert_close(pruned(X), model.forward_codes(codes))
    # The model it came from is unchanged, and stays so.
    train(pruned.train(), X, y)
    assert torch.equal(model(X[:9]), whole)
    assert torch.equal(model.usage, usage)


def test_an_untrained_model_cannot_be_pruned(keys):
    with pytest.raises(ValueError, match="prune: expected a model that has been trained"):
        KeyValueBottleneck(keys, 4).prune()


def test_maps_pooled_before_or_after(keys):
    torch.manual_seed(0)
    maps = torch.randn(6, 2, 3, 8)
    before = KeyValueBottleneck(keys, 4, value_start="normal", pool="before")
    torch.testing.assert_close(before(maps), before(maps.mean(dim=(1, 2))))
    for decoder in ("mean", "linear"):
        after = KeyValueBottleneck(keys, 4, value_start="normal", decoder=decoder, pool="after")
        codes = keys.codes(maps.reshape(36, 8)).long()  # (36, C)
        fetched = after.values[torch.arange(5), codes].view(6, 6, 5, 4).mean(dim=1)
        torch.testing.assert_close(after(maps), after.decoder(fetched))
        assert after.usage.sum(dim=1).tolist() == [36] * 5
        torch.testing.assert_close(after.forward_codes(codes.view(6, 6, 5)), after(maps))
    for gradient in GRADIENTS[1:]:
        assert KeyValueBottleneck(keys, 4, gradient=gradient, pool="after")(maps).shape == (6, 4)


def test_a_decoder_of_ones_own_trainable_or_frozen(keys, X, y):
    own = nn.Sequential(nn.Flatten(), nn.Linear(5 * 6, 4))
    own[1].bias.requires_grad_(False)
    model = KeyValueBottleneck(keys, 4, value_dim=6, decoder=own, value_start="normal")
    assert not own[1].bias.requires_grad  # what its owner froze stays frozen
    before = own[1].weight.clone()
    train(model, X, y)
    assert not torch.equal(own[1].weight, before)

    frozen = KeyValueBottleneck(keys, 4, value_dim=6, decoder="mlp", train_decoder=False)
    frozen.values.data.normal_()
    state = copy.deepcopy(frozen.decoder.state_dict())
    train(frozen, X, y)
    assert all(torch.equal(t, state[name]) for name, t in frozen.decoder.state_dict().items())
    assert frozen.values.grad.abs().sum() > 0
    assert not any(p.requires_grad for p in frozen.prune().decoder.parameters())


def test_other_precisions(keys, X, y):
    model = KeyValueBottleneck(keys, 4, decoder="linear", value_start="normal")
    expected = model(X)
    double = copy.deepcopy(model).double()
    assert double(X).dtype == torch.float64
    torch.testing.assert_close(double(X).float(), expected)
    train(double, X, y)
    assert double.float()(X).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = model(X)
    torch.testing.assert_close(mixed.float(), expected, rtol=0.05, atol=0.05)
    with pytest.raises(TypeError, match=r"keys: expected float32 or float64; got torch\.float16"):
        model.half()(X)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_on_a_cuda_device(gradient, keys, X, y):
    model = KeyValueBottleneck(keys, 4, gradient=gradient, value_start="normal")
    expected = model.eval()(X)
    model = model.to("cuda")
    torch.testing.assert_close(model(X.cuda()).cpu(), expected)
    train(model.train(), X.cuda(), y.cuda())
    assert model.prune()(X.cuda()).is_cuda
    assert model.to("cpu")(X).shape == (60, 4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_outputs": 0}, "n_outputs: expected a whole number"),
        ({"value_dim": 3}, "value_dim: expected 4, one a class"),
        ({"value_dim": 0}, "value_dim: expected a whole number"),
        ({"decoder": "sum"}, "decoder: expected one of"),
        ({"value_start": "one"}, "value_start: expected one of"),
        ({"pool": "during"}, "pool: expected one of 'before', 'after'"),
        ({"gradient": "soft"}, "gradient: expected one of 'values', 'straight-through', 'gumbel'"),
        ({"temperature": 0.0}, r"temperature: expected a number in \(0, inf\)"),
    ],
)
def test_bad_settings(settings, message, keys):
    with pytest.raises(ValueError, match=message):
        KeyValueBottleneck(keys, **{"n_outputs": 4} | settings)


@pytest.mark.parametrize("shape", [(3, 7), (8,), (0, 8), (2, 2, 8)])
def test_bad_rows_change_nothing(shape, keys):
    model = KeyValueBottleneck(keys, 4)
    with pytest.raises(ValueError, match="X: expected"):
        model(torch.zeros(shape))
    with pytest.raises(ValueError, match="X: expected finite"):
        model(torch.full((2, 8), torch.nan))
    with pytest.raises(ValueError, match=r"codes: expected \(n, 5\)"):
        model.forward_codes(torch.zeros(3, 4, dtype=torch.int64))
    assert not model.usage.any()
