"""Manifests of millpond's custom resources, checked without a cluster.

for found in check_manifest(text).findings:
    print(found.line, found.field, found.text)
"""

from .checking import Application, Checked, Finding, check_manifest, evaluates_rules

__all__ = ("Application", "Checked", "Finding", "check_manifest", "evaluates_rules")
