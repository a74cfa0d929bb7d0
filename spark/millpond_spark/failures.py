"""Say in one sentence why Spark failed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from millpond.errors import MillpondError, SnapshotError

__all__ = ("cause_of", "one_sentence", "reason_of")

#: What an executor's Python raised on purpose, as Spark quotes its traceback.
_OWN = re.compile(r"^(?:millpond\.errors|millpond\.[\w.]+)\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_JAVA = re.compile(r"^(?:Caused by: |: )?(?:[a-z]\w*\.)+(\w*(?:Exception|Error)): (.+)$", re.MULTILINE)
_CURES = (
    (re.compile(r"OffsetOutOfRange|data loss|were aged out|KAFKA_DATA_LOSS", re.IGNORECASE),
     "a changelog lost its beginning while it was read, by 'retention.ms' of the topic or by hand: make the snapshot again"),
    (re.compile(r"SslAuthenticationException|SSLHandshakeException|InvalidConfigurationException.*(?:PEM|key)|SaslAuthenticationException"),
     "Spark cannot log in to Kafka, although this process can: executors take the certificates of the settings that begin with "
     "'ssl.', and Java's own where 'ssl.ca.location' is not set; set it"),
    (re.compile(r"No module named '(?:millpond|rocksdict|pyarrow|obstore)"),
     "Spark's executors cannot import millpond: install 'millpond[spark]' in their Python, too, which 'PYSPARK_PYTHON' names"),
    (re.compile(r"OutOfMemoryError|GC overhead"),
     "an executor of Spark has too little memory: set 'spark.driver.memory' for local[*], or 'spark.executor.memory'"),
    (re.compile(r"No space left on device"),
     "there is no space left, for Spark's temporary files or at the location of tables: make room, or set 'spark.local.dir'"),
    (re.compile(r"SparkContext (?:was|has been) (?:shut|stopped)|Answer from Java side is empty|Connection refused", re.IGNORECASE),
     "Spark ended before the snapshot was complete: look for the reason in Spark's own logs, and make the snapshot again"),
)  # fmt: skip


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Raise what Spark raises within the block as a `SnapshotError`; errors of millpond pass."""
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise SnapshotError(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """Return one sentence that says why a job of Spark failed."""
    text = str(error)
    if own := _OWN.findall(text):
        return str(own[-1]).strip()
    for pattern, sentence in _CURES:
        if pattern.search(text):
            return f"{sentence}."
    return f"Spark could not make the snapshot ({cause_of(error)})."


def cause_of(error: BaseException) -> str:
    """Return the innermost error that Spark tells of, and what it says, on one line."""
    text = str(error)
    for pattern in (_PYTHON, _JAVA):
        if found := pattern.findall(text):
            name, told = found[-1]
            return f"{name}: {told.strip().rstrip('.')}"
    return (text.strip() or type(error).__name__).splitlines()[0].rstrip(".")
