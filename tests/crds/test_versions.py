"""How objects move to a later version of their definition, as docs/crd-versions.md says, on a real API server."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.waiting import wait_for
from tests.crds.conftest import REPOSITORY

OLD, NEW = "v1alpha1", "v1beta1"


class Definition:
    """The definition of StreamApps in a group of its own."""

    def __init__(self, api: Api, group: str, namespace: str) -> None:
        self._api = api
        (given,) = (
            each
            for each in yaml.safe_load_all((REPOSITORY / "crds/streamapps.yaml").read_text())
            if each and each["kind"] == "CustomResourceDefinition"
        )
        text = yaml.safe_dump(given).replace("millpond.dev", group)
        self._given: Object = yaml.safe_load(text)
        self._given["spec"]["names"].pop("categories")
        self._given["spec"]["names"].pop("shortNames")
        self.group, self.name = group, self._given["metadata"]["name"]
        self._namespace = namespace

    def serve(self, stored: str, *others: str) -> None:
        """Serve versions, one of which is stored."""
        (first,) = self._given["spec"]["versions"]
        versions = [first | {"name": each, "storage": each == stored} for each in (stored, *others)]
        made = copy.deepcopy(self._given)
        made["spec"]["versions"] = versions
        self._api.apply(made)
        served = [each in {stored, *others} for each in (OLD, NEW)]
        # The API server sets up its storage anew a moment after the change.
        wait_for(lambda: self._established() and [self._serves(each) for each in (OLD, NEW)] == served, "it is served")

    def _established(self) -> bool:
        found = self._api.get("CustomResourceDefinition", None, self.name)
        conditions = found.get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _serves(self, version: str) -> bool:
        try:
            self._api.request("GET", self.objects(version))
        except ApiFailure as failure:
            assert failure.status in {404, 429}, failure  # its storage is set up anew
            return False
        return True

    def objects(self, version: str) -> str:
        """Return the path of the objects in a version."""
        return f"/apis/{self.group}/{version}/namespaces/{self._namespace}/streamapps"

    def stored(self) -> list[str]:
        """Return the versions in which objects may be stored."""
        found: list[str] = self._api.get("CustomResourceDefinition", None, self.name)["status"]["storedVersions"]
        return found

    def delete(self) -> None:
        self._api.delete("CustomResourceDefinition", None, self.name)


@pytest.fixture
def definition(api: Api, namespace: str) -> Iterator[Definition]:
    made = Definition(api, f"{namespace[-8:]}.example.com", namespace)
    yield made
    made.delete()


def test_objects_move_to_a_later_version_without_a_change(api: Api, definition: Definition) -> None:
    """They are written again once the later version is stored; then the earlier one can go."""
    spec = {"image": "delays:1", "topology": "app:delays", "kafka": {"bootstrapServers": "kafka:9092"}}
    definition.serve(OLD)
    object = {"apiVersion": f"{definition.group}/{OLD}", "kind": "StreamApp", "metadata": {"name": "delays"}}
    before = api.request("POST", definition.objects(OLD), object | {"spec": spec})
    definition.serve(OLD, NEW)
    definition.serve(NEW, OLD)
    assert definition.stored() == [OLD, NEW]
    path = f"{definition.objects(NEW)}/delays"

    def found() -> Object | None:
        with contextlib.suppress(ApiFailure):  # while its storage is set up anew
            return api.request("GET", path)
        return None

    def written_again() -> bool:
        """Write it as it is, as `kubectl replace` does."""
        with contextlib.suppress(ApiFailure):
            return bool(api.request("PUT", path, api.request("GET", path)))
        return False

    wait_for(written_again, "it is written again", otherwise=found)
    api.patch(
        "CustomResourceDefinition", None, definition.name, {"status": {"storedVersions": [NEW]}}, subresource="status"
    )
    definition.serve(NEW)
    wait_for(found, "it is read")
    after = found()
    assert after is not None
    assert after["spec"] == before["spec"]
    assert [after["metadata"][key] for key in ("uid", "generation")] == [
        before["metadata"][key] for key in ("uid", "generation")
    ]


def test_page_names_the_served_version_and_all_definitions() -> None:
    """What it says is what is installed."""
    page = (REPOSITORY / "docs/crd-versions.md").read_text()
    for file in sorted((REPOSITORY / "crds").glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            if each and each["kind"] == "CustomResourceDefinition":
                assert f"`{each['spec']['names']['kind']}`" in page
                assert each["spec"]["names"]["plural"] in re.split(r"[\s,]+", page)
                assert [version["name"] for version in each["spec"]["versions"]] == [OLD]
                assert each["spec"].get("conversion", {}).get("strategy", "None") == "None"
