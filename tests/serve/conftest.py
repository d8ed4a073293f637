"""One service for all tests of a module that only ask, and one per test for those that teach."""

import httpx
import pytest

from .shared import make_model, running


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "pets")


@pytest.fixture
def client(model):
    with running(model) as url, httpx.Client(base_url=url) as client:
        yield client


@pytest.fixture(params=["kernel", "sums", "bottleneck", "prototypes"])
def any_client(request, tmp_path):
    path = make_model(tmp_path / "pets", request.param)
    with running(path) as url, httpx.Client(base_url=url) as client:
        client.name = request.param
        yield client
