"""Which modules are imported together: the control plane imports neither Kafka's client nor RocksDB."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import millpond

ROOT = Path(__file__).parents[2]
HEAVY = ("confluent_kafka", "mmh3", "rocksdict", "rich", "click", "prometheus_client")


@pytest.fixture(scope="session")
def loaded_by(processes: None) -> Callable[[str], set[str]]:
    """The modules that a new interpreter has loaded after a statement."""
    return _loaded_by


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    roots = f"sys.path[:0] = {[str(ROOT / 'worker'), str(ROOT / 'operator')]}"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys\n{roots}\n{code}"], capture_output=True, text=True, check=True
    )
    return set(ended.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import millpond",
        "import millpond.errors",
        "import millpond.protocol",
        "from millpond.topology import TaskId",
        "import millpond.protocol.client",
        "import millpond_operator.assignment",
    ],
)
def test_shared_modules_import_no_data_plane(statement: str, loaded_by: Callable[[str], set[str]]) -> None:
    """Modules that the operator shares import none of the packages that its image lacks."""
    assert not loaded_by(statement) & set(HEAVY)


def test_control_plane_imports_no_data_plane(loaded_by: Callable[[str], set[str]]) -> None:
    """The operator's modules import no Kafka client and no RocksDB; its image has neither."""
    everything = (
        "import importlib, pkgutil, millpond_operator as package\n"
        "for each in pkgutil.walk_packages(package.__path__, 'millpond_operator.'): importlib.import_module(each.name)"
    )
    loaded = loaded_by(everything)
    assert "millpond_operator.coordinator.server.server" in loaded
    assert not loaded & {"confluent_kafka", "mmh3", "rocksdict", "rich"}


def test_building_a_topology_imports_no_client_or_state_file(loaded_by: Callable[[str], set[str]]) -> None:
    """`StreamsBuilder` only describes the topology."""
    loaded = loaded_by(
        "import millpond as mp\nmp.StreamsBuilder().stream('in', key=mp.String, value=mp.String).to('x')"
    )
    assert not loaded & {"confluent_kafka", "rich", "click"}


def test_facade_names_match_what_type_checkers_see() -> None:
    """The imports for type checkers and the table for lazy imports have the same names."""
    tree = ast.parse(inspect.getsource(millpond))
    declared = {
        alias.name: ".".join(filter(None, ["millpond" if node.level else "", node.module]))
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert declared.pop("testing") == "millpond"
    assert declared == millpond._HOMES
    for name, home in declared.items():
        assert getattr(millpond, name) is getattr(sys.modules[home], name)
    assert set(millpond.__all__) == {*declared, "testing", "__version__"}
    assert set(millpond.__all__) <= set(dir(millpond))


def test_names_can_be_imported_one_by_one_and_all_together(loaded_by: Callable[[str], set[str]]) -> None:
    """`from millpond import …` works with lazily loaded names."""
    loaded_by("from millpond import Topology, Json, testing; assert Json; assert testing.TopologyTestDriver")
    loaded_by("from millpond import *; assert Worker and StreamsBuilder and Struct")
    loaded_by("import millpond as mp; assert mp.testing.TopologyTestDriver and mp.errors.TopicError")


def test_missing_name_suggests_the_nearest_one() -> None:
    """A misspelled name raises the usual errors, with the near name in the text, once."""
    told = "has no attribute 'StreamBuilder'; did you mean 'StreamsBuilder'?"
    with pytest.raises(AttributeError, match=re.escape(told)) as caught:
        millpond.StreamBuilder  # noqa: B018
    assert caught.value.obj is None
    with pytest.raises(ImportError, match=re.escape(told)):
        from millpond import StreamBuilder  # noqa: F401
