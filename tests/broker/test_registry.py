"""The schema registry of `millpond dev`: its answers are those of Confluent's, and its schemas outlive a session."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from millpond.broker.registry import Schemas, serving_registry
from millpond.errors import BrokerError, ConfigError

TEXT = '{"type": "string"}'
OTHER = '{"type": "long"}'


def post(schemas: Schemas, path: str, schema: str) -> Any:
    status, document = schemas.answer("POST", path, {"schema": schema, "schemaType": "AVRO"})
    assert status == 200, document
    return document


def test_a_schema_has_one_id_and_a_version_in_each_subject() -> None:
    """The same schema again changes nothing, in another subject it has the same id."""
    schemas = Schemas()
    assert post(schemas, "/subjects/a-value/versions", TEXT)["id"] == 1
    assert post(schemas, "/subjects/a-value/versions", OTHER)["id"] == 2
    assert post(schemas, "/subjects/a-value/versions", TEXT)["id"] == 1
    assert post(schemas, "/subjects/b%2Fc/versions", OTHER)["id"] == 2
    assert schemas.answer("GET", "/subjects", {}) == (200, ["a-value", "b/c"])
    assert schemas.answer("GET", "/subjects/a-value/versions", {}) == (200, [1, 2])
    guid = post(schemas, "/subjects/b%2Fc/versions", OTHER)["guid"]
    latest = {"subject": "a-value", "version": 2, "id": 2, "guid": guid, "schema": OTHER, "schemaType": "AVRO"}
    for version in ("latest", "-1", "2"):
        assert schemas.answer("GET", f"/subjects/a-value/versions/{version}", {}) == (200, latest)
    assert post(schemas, "/subjects/a-value", OTHER) == latest
    assert schemas.answer("GET", "/schemas/ids/1", {}) == (200, {"schema": TEXT, "schemaType": "AVRO"})
    by_guid = {"id": 2, "guid": guid, "schema": OTHER, "schemaType": "AVRO"}
    assert schemas.answer("GET", f"/schemas/guids/{guid}", {}) == (200, by_guid)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/schemas/ids/9", 40403),
        ("GET", "/schemas/ids/x", 40403),
        ("GET", "/schemas/guids/x", 40403),
        ("GET", "/subjects/b/versions/latest", 40401),
        ("GET", "/subjects/a/versions/7", 40402),
        ("GET", "/subjects/a/versions/x", 40402),
        ("GET", "/subjects/b/versions", 404),
        ("POST", "/subjects/a", 40403),
        ("POST", "/subjects/a/versions", 404),
        ("GET", "/config", 404),
    ],
)
def test_what_does_not_exist_has_the_error_code_of_a_registry(method: str, path: str, code: int) -> None:
    """Clients distinguish these codes."""
    schemas = Schemas()
    post(schemas, "/subjects/a/versions", TEXT)
    status, document = schemas.answer(method, path, {})
    assert status == 404
    assert isinstance(document, dict)
    assert document["error_code"] == code


def test_schemas_are_kept_with_the_data(tmp_path: Path) -> None:
    """With the same ids, which are in the records of topics."""
    file = tmp_path / "data" / "schemas.jsonl"
    first = Schemas(file)
    for subject, schema in (("a", TEXT), ("b", OTHER), ("b", TEXT)):
        post(first, f"/subjects/{subject}/versions", schema)
    again = Schemas(file)
    assert (again.schemas, again.subjects) == (first.schemas, first.subjects)
    assert post(again, "/subjects/c/versions", OTHER)["id"] == 2
    assert Schemas(file).subjects == {"a": [1], "b": [2, 1], "c": [2]}
    file.write_text("{", encoding="utf-8")
    with pytest.raises(BrokerError, match=r"the schemas in .*schemas\.jsonl cannot be read"):
        Schemas(file)


def test_it_is_served_over_http_on_loopback() -> None:
    """Also what is no JSON gets an answer; a port in use is one sentence."""
    with serving_registry(Schemas()) as url:
        sent = urllib.request.Request(
            f"{url}/subjects/a/versions?normalize=False", json.dumps({"schema": TEXT}).encode()
        )
        with urllib.request.urlopen(sent, timeout=60) as answer:
            assert json.load(answer)["id"] == 1
        for wrong in (b"{", b"[]"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(f"{url}/subjects/a/versions", wrong), timeout=60)
            with refused.value as error:
                assert (error.code, json.load(error)["error_code"]) == (422, 42201)
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"cannot listen on port {port} .* by --registry-port"):
            serving_registry(Schemas(), port).__enter__()
