"""An embedded Apache Kafka broker for development, tests, the demo and the benchmark. It is not for production.

`EmbeddedBroker` runs the broker; `jars` downloads Kafka's jars, `java` finds a Java runtime.
"""

from __future__ import annotations

from .embedded import EmbeddedBroker
from .jars import JarError
from .java import JavaNotFound

__all__ = ("EmbeddedBroker", "JarError", "JavaNotFound")
