"""Commands of the documentation with other ports."""

from __future__ import annotations

from tests.demo.commands import replace_words


def test_a_port_that_contains_another_ones_digits_stays_whole() -> None:
    """Free ports are chosen by chance: 28000 is one, and pages name the port 8000."""
    words = {"8000": "26747", "localhost:9092": "127.0.0.1:29092", "--port 9092": "--port 28000"}
    text = "export PORT=28000; serve --port 9092 --url http://localhost:8000/8000 localhost:9092"
    shown = "export PORT=28000; serve --port 28000 --url http://localhost:26747/26747 127.0.0.1:29092"
    assert replace_words(text, words) == shown
    assert replace_words(text, {}) == text
