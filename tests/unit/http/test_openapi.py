"""The OpenAPI document matches the handlers."""

from litestar import Litestar

from tailrace.broker.broker import Broker
from tailrace.http.app import create_app
from tailrace.http.health import ServerStatus
from tailrace.http.openapi import document
from tailrace.model.clock import SystemClock
from tailrace.model.limits import DEFAULT_LIMITS
from tailrace.store.memory import MemoryStore


def app() -> Litestar:
    clock = SystemClock()
    return create_app(Broker(MemoryStore(), clock), ServerStatus("fsync", clock, lambda: None), DEFAULT_LIMITS).load()


def test_bodies_and_responses_refer_to_the_schemas_that_are_used() -> None:
    made = document(app())
    publish = made["paths"]["/api/topics/publish"]["post"]
    assert publish["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/PublishBody"}
    assert publish["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/PublishResponse"
    }
    assert publish["responses"]["4XX"]["content"].keys() == {"application/problem+json"}
    message = made["components"]["schemas"]["SentMessage"]
    assert message["additionalProperties"] is False
    assert message["required"] == ["topic"]


def test_parameters_of_the_path_are_required_and_those_of_the_query_are_bounded() -> None:
    made = document(app())
    parameters = {
        (each["name"], each["in"], each["required"])
        for each in made["paths"]["/api/groups/{group_id}/offsets"]["get"]["parameters"]
    }
    assert parameters == {
        ("group_id", "path", True),
        ("topic", "query", False),
        ("after", "query", False),
        ("limit", "query", False),
    }
    (limit,) = [each for each in made["paths"]["/api/topics"]["get"]["parameters"] if each["name"] == "limit"]
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000}


def test_every_reference_resolves() -> None:
    made = document(app())
    schemas = {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}
    assert set(_references(made)) <= schemas


def _references(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [found for value in node.values() for found in _references(value)]
    return [found for item in node for found in _references(item)] if isinstance(node, list | tuple) else []
