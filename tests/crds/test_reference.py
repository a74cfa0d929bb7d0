from __future__ import annotations

from docs.crds import main, pages


def test_reference_matches_the_definitions(capsys):
    """docs/reference/ is up to date with `python -m docs.crds`."""
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_every_field_is_described(definitions):
    """Every field has a description, except for trivial ones of the status."""

    def undescribed(schema, path):
        for name, field in schema.get("properties", {}).items():
            if "description" not in field:
                yield f"{path}.{name}"
            yield from undescribed(field, f"{path}.{name}")
            yield from undescribed(field.get("items", {}), f"{path}.{name}[]")

    for definition in definitions.values():
        (version,) = definition["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        missing = list(undescribed(schema["properties"]["spec"], "spec"))
        assert not missing


def test_reference_has_every_kind_and_every_message():
    """The messages of all rules are in the reference."""
    text = "\n".join(pages().values())
    assert set(pages()) == {"index.md", "statebootstraps.md", "streamapps.md", "streamassignments.md"}
    assert "| `standbyReplicas` | integer, 0 to 10 | `0` |" in text
    assert "workers of both guarantees must not run at once" in text
