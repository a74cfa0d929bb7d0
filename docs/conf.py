"""Sphinx: pages in Markdown, the API from docstrings."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "worker"), str(Path(__file__).parent)]

project = "millpond"
copyright = "the millpond authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "llms"]
html_theme = "furo"
html_title = "millpond"
html_copy_source = False

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "__weakref__"}
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
myst_heading_anchors = 3
