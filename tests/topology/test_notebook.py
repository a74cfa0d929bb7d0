"""A topology in a notebook is a picture."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree as ET

import millpond as mp


def topology(streams: int) -> mp.Topology:
    builder = mp.StreamsBuilder()
    for number in range(streams):
        builder.stream(f"in-{number}", key=mp.String, value=mp.String).to(f"out-{number}")
    return builder.build()


def test_a_notebook_shows_a_picture_and_the_description() -> None:
    """The picture is an image, so that its styles do not apply to the page; Mermaid and text are there, too."""
    shown = topology(1)._repr_mimebundle_()
    found = re.fullmatch(r'<img alt="The topology" src="data:image/svg\+xml;base64,(.*)">', shown["text/html"])
    assert found is not None
    picture = base64.b64decode(found[1])
    assert ET.fromstring(picture).tag.endswith("svg")
    assert b"in-0" in picture
    assert shown["text/vnd.mermaid"] == topology(1)._repr_mermaid_() == topology(1).mermaid()
    assert shown["text/plain"] == str(topology(1).describe())


def test_a_graph_that_is_too_large_for_a_picture_is_a_flowchart() -> None:
    """Drawing it would take long, and nobody could read it."""
    assert topology(600)._repr_mimebundle_().keys() == {"text/plain", "text/vnd.mermaid"}
