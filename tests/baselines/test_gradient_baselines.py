"""The MLP, SDMLP, EWC and the fly, each against an obvious version of itself."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss, normalize

from dkvb.baselines._consolidation import fisher
from dkvb.estimators.registry import (
    EWCClassifier,
    FlyClassifier,
    LinearClassifier,
    MLPClassifier,
    SDMLPClassifier,
)
from dkvb.kernels.hashing import epoch_order

from ..estimators.settings import blobs


def batches(n, epochs, size, seed=0, first=0):
    for epoch in range(first, first + epochs):
        yield from epoch_order(n, seed, epoch).split(size)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_the_mlp_is_the_obvious_loop(optimizer):
    X, y = blobs(3, a_class=11)
    settings = {"learning_rate": 0.05, "weight_decay": 0.1, "label_smoothing": 0.2}
    model = MLPClassifier(
        hidden=9, epochs=4, batch_size=8, optimizer=optimizer, random_state=5, **settings
    ).partial_fit(X, y, classes=[0, 1, 2])

    torch.manual_seed(5)
    layers = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.ReLU(), torch.nn.Linear(9, 3))
    for parameter in layers[2].parameters():
        torch.nn.init.zeros_(parameter)
    maker = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adam
    stepper = maker(layers.parameters(), lr=0.05, weight_decay=0.1)
    x, labels = torch.tensor(X), torch.tensor(y)
    for rows in batches(33, 4, 8, seed=5):
        stepper.zero_grad()
        cross_entropy(layers(x[rows]), labels[rows], label_smoothing=0.2).backward()
        torch.nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        stepper.step()
    assert np.allclose(model.decision_function(X), layers(x).detach().numpy(), atol=1e-5)


def test_a_long_gradient_is_shortened():
    X, y = blobs(2)
    one_step = {"learning_rate": 1.0, "epochs": 1, "batch_size": len(X)}
    model = LinearClassifier(**one_step).fit(100 * X, y)
    assert np.sqrt(sum(float((w**2).sum()) for w in model._weights.values())) == pytest.approx(1)


def test_sdmlp_is_the_obvious_loop():
    X, y = blobs(3, a_class=11)
    model = SDMLPClassifier(
        n_neurons=20, k=3, switch_after=60, epochs=6, batch_size=8, learning_rate=0.5
    )
    model.partial_fit(X, y, classes=[0, 1, 2])

    torch.manual_seed(0)
    neurons = torch.nn.Linear(6, 20, bias=False)
    output = torch.nn.Linear(20, 3, bias=False)
    answered = torch.zeros(20)
    with torch.no_grad():
        output.weight.zero_()
        neurons.weight.copy_(normalize(neurons.weight.relu(), dim=1))
    stepper = torch.optim.SGD([neurons.weight, output.weight], lr=0.5)

    def forward(x):
        x = normalize(x.relu(), dim=1)
        a = neurons(x).relu()
        inhibition = a.detach().sort(dim=1, descending=True).values[:, 3:4]
        switch = (-1 + 2 * answered / 60).clamp(-1, 1)
        active = (a - switch * inhibition).relu()
        return active, output(active)

    x, labels = torch.tensor(X), torch.tensor(y)
    for rows in batches(33, 6, 8):
        active, logits = forward(x[rows])
        answered += (active > 0).sum(dim=0)
        stepper.zero_grad()
        cross_entropy(logits, labels[rows]).backward()
        torch.nn.utils.clip_grad_norm_([neurons.weight, output.weight], 1.0)
        stepper.step()
        with torch.no_grad():
            output.weight.relu_()
            neurons.weight.copy_(normalize(neurons.weight.relu(), dim=1))
    assert np.allclose(model.decision_function(X), forward(x)[1].detach().numpy(), atol=1e-5)
    assert (answered > 60).any()
    assert (answered < 60).any()


def test_once_switched_at_most_k_neurons_answer():
    X, y = blobs(3)
    model = SDMLPClassifier(n_neurons=50, k=4, switch_after=20, epochs=5).fit(np.abs(X), y)
    model._buffers["inputs answered"].fill_(20)  # those that never win would never switch
    weights = {name: weight[None] for name, weight in model._weights.items()}
    buffers = {name: buffer[None] for name, buffer in model._buffers.items()}
    x = model._encode(torch.from_numpy(np.abs(X)))[None]
    active = model._forward(weights, buffers, x, learning=False).layers["output"].inputs
    assert 1 <= int((active > 0).sum(dim=2).max()) <= 4
    assert all(float(weight.min()) >= 0 for weight in model._weights.values())
    norms = model._weights["neurons weight"].norm(dim=0)
    assert torch.allclose(norms[norms > 0], torch.ones(()))
    assert (norms > 0).sum() >= 45  # few began with no positive weight at all


def test_k_must_leave_a_neuron_over():
    with pytest.raises(ValueError, match="k: expected fewer than n_neurons = 5; got 5"):
        SDMLPClassifier(n_neurons=5, k=5).fit(*blobs(2))


def per_row_fisher(model, X):
    """Mean over rows and labels, as likely as the model finds them, of squared gradients."""
    weights = {name: w.clone().requires_grad_() for name, w in model._weights.items()}
    found = {name: torch.zeros_like(w) for name, w in weights.items()}
    for row in torch.from_numpy(X):
        hidden = (row[None] @ weights["hidden weight"] + weights["hidden bias"]).relu()
        logs = (hidden @ weights["output weight"] + weights["output bias"]).log_softmax(dim=1)[0]
        for log in logs:
            gradients = torch.autograd.grad(-log, list(weights.values()), retain_graph=True)
            for name, gradient in zip(weights, gradients, strict=True):
                found[name] += log.detach().exp() * gradient**2 / len(X)
    return found


def test_fisher_information_is_that_of_single_rows():
    X, y = blobs(3, a_class=5)
    model = EWCClassifier(hidden=4, learning_rate=0.1, epochs=3).fit(X, y)
    for name, expected in per_row_fisher(model, X).items():
        assert torch.allclose(
            model._buffers[f"precision of {name}"], expected, rtol=1e-3, atol=1e-7
        )
        pull = model._buffers[f"pull of {name}"]
        assert torch.allclose(pull, expected * model._weights[name], rtol=1e-3, atol=1e-7)


def test_ewc_descends_on_the_loss_with_a_term_for_each_task():
    X, y = blobs(3, a_class=8)
    settings = {"hidden": 5, "learning_rate": 0.05, "batch_size": 8, "epochs": 2}
    model = EWCClassifier(ewc_strength=30.0, **settings)
    tasks = []
    for label in (0, 1, 2):
        rows = y == label
        if label == 2:  # the task to follow by hand
            before = {name: w.clone().requires_grad_() for name, w in model._weights.items()}
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
        tasks.append(
            (per_row_fisher(model, X[rows]), {k: w.clone() for k, w in model._weights.items()})
        )

    x, labels = torch.from_numpy(X[y == 2]), torch.full((8,), 2)
    for rows in batches(8, 2, 8, first=4):
        hidden = (x[rows] @ before["hidden weight"] + before["hidden bias"]).relu()
        logits = hidden @ before["output weight"] + before["output bias"]
        loss = cross_entropy(logits, labels[rows], label_smoothing=0.1)
        for information, anchor in tasks[:2]:
            for name, weight in before.items():
                loss = loss + 0.5 * 30 * (information[name] * (weight - anchor[name]) ** 2).sum()
        gradients = torch.autograd.grad(loss, list(before.values()))
        norm = torch.stack([g.norm() for g in gradients]).norm()
        with torch.no_grad():
            for weight, gradient in zip(before.values(), gradients, strict=True):
                weight -= 0.05 * gradient * min(1.0, 1 / float(norm))
    for name, weight in before.items():
        assert mse_loss(model._weights[name], weight) < 1e-9


def test_a_task_ends_with_a_call_or_when_told():
    X, y = blobs(4)
    early = y < 2
    settings = {"hidden": 8, "learning_rate": 0.1, "epochs": 5, "ewc_strength": 50.0}
    by_call = EWCClassifier(**settings)
    told = EWCClassifier(boundary="told", **settings)
    never = EWCClassifier(boundary="told", **settings)
    assert not by_call.learns_in_epochs
    assert told.learns_in_epochs
    for rows in (early, ~early):
        by_call.partial_fit(X[rows], y[rows], classes=range(4))
        never.partial_fit(X[rows], y[rows], classes=range(4))
        told.partial_fit(X[rows], y[rows], classes=range(4)).end_task(X[rows])
    assert np.array_equal(by_call.decision_function(X), told.decision_function(X))
    plain = MLPClassifier(hidden=8, learning_rate=0.1, epochs=5)
    for rows in (early, ~early):
        plain.partial_fit(X[rows], y[rows], classes=range(4))
    assert np.array_equal(never.decision_function(X), plain.decision_function(X))
    assert not np.allclose(told.decision_function(X), plain.decision_function(X))
    with pytest.raises(ValueError, match="2 features"):
        told.end_task(X[:, :2])


def test_strength_can_be_raised_later():
    X, y = blobs(3)
    model = SDMLPClassifier(n_neurons=20, k=3).partial_fit(X, y)
    model.set_params(ewc_strength=2.0).partial_fit(X, y)
    assert float(model._buffers["precision of output weight"].max()) > 0


def test_a_larger_strength_holds_weights_back():
    X, y = blobs(4)
    moved = []
    for strength in (1e-3, 100.0):
        model = EWCClassifier(hidden=8, learning_rate=0.05, epochs=20, ewc_strength=strength)
        model.partial_fit(X[y < 2], y[y < 2], classes=range(4))
        before = model._weights["hidden weight"].clone()
        weight = model._buffers["precision of hidden weight"].clone()
        model.partial_fit(X[y >= 2], y[y >= 2])
        moved.append(float((weight * (model._weights["hidden weight"] - before) ** 2).sum()))
    assert moved[1] < 0.5 * moved[0]


def test_fisher_of_a_linear_layer():
    X, y = blobs(2)
    model = LinearClassifier(epochs=2).fit(X, y)
    weights = {name: w[None].clone().requires_grad_() for name, w in model._weights.items()}
    found = fisher(model._forward(weights, {}, torch.from_numpy(X)[None], learning=False))
    shares = model.predict_proba(X)
    both = shares[:, 0] * shares[:, 1]  # E (p − y)² of each column, by hand
    expected = (X.astype(float) ** 2 * both[:, None]).sum(axis=0)
    for column in (0, 1):
        assert np.allclose(found["output weight"][0, :, column].detach(), expected, rtol=1e-4)
        assert float(found["output bias"][0, 0, column]) == pytest.approx(both.sum(), rel=1e-4)


def test_the_fly_is_the_obvious_loop():
    X, y = blobs(3, a_class=7, width=30)  # so many that no two cells have equal sums
    rate, epochs = 0.05, 5  # enough for some weights to reach 1
    model = FlyClassifier(n_cells=60, n_inputs=3, share=0.1, learning_rate=rate, epochs=epochs).fit(
        X, y
    )

    def cells(row):
        scaled = (row - row.min()) / (row.max() - row.min())
        sums = np.array([scaled[inputs].sum() for inputs in model._inputs])
        answer = np.zeros(60)
        best = np.argsort(-sums, kind="stable")[:6]
        answer[best] = sums[best] / sums.max()
        return answer

    weights = np.zeros((3, 60))
    for _ in range(epochs):
        for row, label in zip(X, y, strict=True):
            weights[label] = np.minimum(1, weights[label] + rate * cells(row))
    assert (weights == 1).any()
    expected = np.array([weights @ cells(row) for row in X])
    assert np.allclose(model.decision_function(X), expected, atol=1e-5)


def test_wiring_of_the_fly():
    model = FlyClassifier(n_cells=300, n_inputs=4, share=0.05).fit(*blobs(2, width=40))
    assert all(len(set(inputs)) == 4 for inputs in model._inputs.tolist())
    assert (model._projection().sum(axis=1) == 4).all()
    active, strength = model._cells(blobs(2, width=40)[0])
    assert active.shape[1] == 15
    assert float(strength.max()) == 1
    narrow = FlyClassifier(n_cells=10, n_inputs=4).fit(*blobs(2, width=2))
    assert narrow._inputs.shape == (10, 2)  # no more inputs than there are


def test_the_fly_saturates_over_epochs():
    noise = np.random.default_rng(0)
    (X, y), (queries, truth) = (
        (X + 4 * noise.normal(size=X.shape), y)
        for X, y in (blobs(6, width=30, a_class=200, seed=seed) for seed in (4, 5))
    )
    model = FlyClassifier(n_cells=500, n_inputs=4, share=0.05)
    once = model.fit(X, y).score(queries, truth)
    often = model.set_params(epochs=5000).fit(X, y).score(queries, truth)
    assert once > 0.8
    assert often < once - 0.1


def test_a_constant_row_is_no_trouble_to_the_fly():
    X, y = blobs(2)
    X[0] = 3.0
    assert np.isfinite(FlyClassifier(n_cells=50, share=0.1).fit(X, y).decision_function(X)).all()


def test_sdmlp_keeps_pretrained_neurons_and_no_outputs():
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 8), dtype=np.float32), np.arange(60) % 3
    sdmlp = SDMLPClassifier(n_neurons=12, k=2, switch_after=100).pretrain(X, y, epochs=5)
    random = SDMLPClassifier(n_neurons=12, k=2, switch_after=100)
    for model in (sdmlp, random):
        model._begin(np.array(["a", "b"]), 8)
    assert sdmlp._weights["output weight"].abs().sum() == 0
    assert sdmlp._buffers["inputs answered"].sum() > 0
    assert not torch.equal(sdmlp._weights["neurons weight"], random._weights["neurons weight"])
    start = sdmlp._pretrained["neurons weight"].clone()
    sdmlp.partial_fit(X, np.array(["a", "b"])[y % 2])
    assert torch.equal(sdmlp._pretrained["neurons weight"], start)  # learning changes a copy
    with pytest.raises(ValueError, match="pretrain: expected a classifier that has learned"):
        sdmlp.pretrain(X, y, epochs=1)
    narrow = SDMLPClassifier(n_neurons=12, k=2).pretrain(X, y, epochs=1)
    with pytest.raises(ValueError, match="expected 8 features, as in pretrain; got 4"):
        narrow.partial_fit(X[:, :4], y)
