"""Who may ask: a token beyond this machine, no other site, no other name."""

import httpx
import pytest
from typer.testing import CliRunner

from dkvb.cli import app

from .shared import good, make_model, problem, running

TOKEN = "a-token-of-more-than-sixteen"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("secure") / "pets")


def test_a_token_is_required_and_compared(model):
    with running(model, token=TOKEN) as url:
        for headers in (
            {},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": TOKEN},
            {"Authorization": f"Basic {TOKEN}"},
        ):
            for path in ("/v1/classes", "/metrics", "/openapi.json", "/v2/models/pets", "/nowhere"):
                answer = httpx.get(f"{url}{path}", headers=headers)
                problem(answer, 401, "--token-file")
                assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in ("/", "/health", "/ready", "/v2/health/live"):
            assert httpx.get(f"{url}{path}").status_code == 200
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert good(httpx.get(f"{url}/v1/classes", headers=right))["rows"] == 30
        named = {**right, "Host": "models.example.org", "Origin": "https://models.example.org"}
        assert httpx.get(f"{url}/v1/classes", headers=named).status_code == 200


def test_without_a_token_only_this_machine_and_its_own_page_may_ask(model):
    with running(model) as url:
        problem(
            httpx.get(f"{url}/v1/classes", headers={"Host": "evil.example"}), 403, "--token-file"
        )
        body = {"json": {"classes": ["ant"], "confirm": True}}
        problem(httpx.get(f"{url}/v1/classes", headers={"Host": "[evil"}), 403)
        for origin in ("https://evil.example", "null", "http://localhost:1", "http://[evil"):
            problem(
                httpx.post(f"{url}/v1/forget", headers={"Origin": origin}, **body), 403, "Origin"
            )
        assert httpx.get(f"{url}/v1/classes", headers={"Origin": url}).status_code == 200
        preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        answer = httpx.options(f"{url}/v1/forget", headers=preflight)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_other_addresses_need_a_token(model):
    with pytest.raises(ValueError, match="--token-file"), running(model, host="0.0.0.0"):
        pass


def test_tokens_in_files(model, tmp_path):
    def refused(*arguments):
        done = CliRunner().invoke(app, ["serve", str(model), *map(str, arguments)])
        assert done.exit_code == 2
        return done.output

    assert "found none" in refused("--token-file", tmp_path / "none")
    (tmp_path / "short").write_text("short\n")
    assert "secrets.token_urlsafe" in refused("--token-file", tmp_path / "short")
    assert "--token-file" in refused("--host", "0.0.0.0")


def test_no_path_of_a_request_is_opened(model, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    with running(model, keep_images=True) as url:
        for path in (
            f"/v1/images/{secret}",
            "/v1/images/../../secret",
            f"/page/{secret}",
            f"/page/..%2f..%2f{secret.name}",
        ):
            answer = httpx.get(f"{url}{path}")
            assert answer.status_code == 404
            assert "the secret" not in answer.text
        tasks = {"tasks": [{"id": 1, "data": {"image": f"file://{secret}"}}]}
        problem(httpx.post(f"{url}/predict", json=tasks), 422, "never opened")
