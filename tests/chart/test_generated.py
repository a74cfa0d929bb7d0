"""What is made from other files is up to date."""

from __future__ import annotations

import yaml

from helm.generate import CHART, ROOT, chart_files, deploy_files
from tests.support.programs.helm import HELM_3, HELM_4


def stale(files) -> list[str]:
    return [
        str(path.relative_to(ROOT)) for path, text in files.items() if not path.exists() or path.read_text() != text
    ]


def test_the_chart_is_up_to_date():
    """Its definitions, schema, icon and README follow from their sources: `make manifests` writes them."""
    assert stale(chart_files()) == []


def test_deploy_is_up_to_date(helm):
    """`deploy/` is what the chart renders by default, with either Helm: `make manifests` writes it."""
    made = deploy_files(helm[HELM_4])
    assert stale(made) == []
    assert {each.name for each in (ROOT / "deploy").iterdir()} == {each.name for each in made}
    assert deploy_files(helm[HELM_3]) == made


def test_the_chart_has_all_definitions():
    """A definition that is removed from `crds/` is removed from the chart."""
    names = {each.name for each in (ROOT / "crds").glob("*.yaml")}
    assert {each.name for each in (CHART / "files" / "crds").iterdir()} == names
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    described = {each["name"] for each in yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])}
    assert described == {yaml.safe_load((ROOT / "crds" / name).read_text())["metadata"]["name"] for name in names}
