"""Requests made from the OpenAPI document: none is answered with an error of the service."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import dkvb.serve.app as application

from .shared import make_model, running

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
ROUTES = [
    (method, route.path)
    for topic in application.ROUTERS
    for route in topic.router.routes
    for method in route.methods
]


@pytest.fixture(scope="module")
def schema(tmp_path_factory):
    model = make_model(tmp_path_factory.mktemp("schema") / "pets")
    with running(model) as url:
        assert httpx.get(f"{url}/openapi.json").status_code == 200
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_request_is_an_error_of_the_service(schema, method, path):
    operation = schema[path.replace(":path}", "}")][method]

    @settings(
        max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy())
    def check(case):
        case.call_and_validate(checks=CHECKS)

    check()
