"""Translate Spark's errors into one sentence with cause and cure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from millpond.errors import MillpondError, SnapshotError
from millpond.runtime.missing_rights import Access, Operation, Resource

__all__ = ("cause_of", "reason_of", "translated_errors")

#: Errors that millpond raised in an executor, in the traceback that Spark quotes.
_OWN = re.compile(r"^(?:millpond\.errors|millpond\.[\w.]+)\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_FORBIDDEN = re.compile(r"TopicAuthorizationException: Not authorized to access topics: \[([^\]]+)\]")
_JAVA = re.compile(r"^(?:Caused by: |: )?(?:[a-z]\w*\.)+(\w*(?:Exception|Error)): (.+)$", re.MULTILINE)
_CURES = (
    (re.compile(r"OffsetOutOfRange|data loss|were aged out|KAFKA_DATA_LOSS", re.IGNORECASE),
     "the beginning of a changelog was deleted while it was read, by 'retention.ms' of the topic or by hand: make the "
     "snapshot again"),
    (re.compile(r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block \S+ not found"),
     "an executor of Spark ended with records that it had read, and a second time compaction may have removed some: "
     "make the snapshot again"),
    (re.compile(r"SslAuthenticationException|SSLHandshakeException|InvalidConfigurationException.*(?:PEM|key)"
                r"|SaslAuthenticationException"),
     "Spark cannot log in to Kafka, although this process can: executors use the certificates of the settings that "
     "begin "
     "with 'ssl.', and Java's own where 'ssl.ca.location' is not set; set it"),
    (re.compile(r"No module named '(?:millpond|rocksdict|pyarrow|obstore)"),
     "Spark's executors cannot import millpond: install 'millpond[spark]' in their Python, too, which 'PYSPARK_PYTHON' "
     "names"),
    (re.compile(r"OutOfMemoryError|GC overhead"),
     "an executor of Spark has too little memory: set 'spark.driver.memory' for local[*], or 'spark.executor.memory'"),
    (re.compile(r"No space left on device"),
     "no space is left for Spark's temporary files, or at the location of tables: free some, or set "
     "'spark.local.dir'"),
    (re.compile(r"SparkContext (?:was|has been) (?:shut|stopped)|Answer from Java side is empty|Connection refused",
                re.IGNORECASE),
     "Spark ended before the snapshot was complete: find the reason in Spark's own logs, and make the snapshot again"),
)  # fmt: skip


@contextlib.contextmanager
def translated_errors(access: Access) -> Iterator[None]:
    """Raise Spark's errors in the block as `SnapshotError`; errors of millpond pass unchanged.

    Args:
        access: names the user in errors about missing rights.
    """
    try:
        yield
    except MillpondError:
        raise
    except Exception as error:
        raise SnapshotError(reason_of(error, access)) from error


def reason_of(error: BaseException, access: Access) -> str:
    """Return one sentence with the reason why a Spark job failed; `access` names the user."""
    text = str(error)
    if own := _OWN.findall(text):
        return str(own[-1]).strip()
    if forbidden := _FORBIDDEN.search(text):
        topics = sorted(each.strip() for each in forbidden[1].split(","))
        return access.lacks(Operation.READ, Resource.TOPIC, *topics)
    for pattern, sentence in _CURES:
        if pattern.search(text):
            return f"{sentence}."
    return f"Spark could not make the snapshot ({cause_of(error)})."


def cause_of(error: BaseException) -> str:
    """Return the class and the message of the innermost error that Spark reports, on one line."""
    text = str(error)
    for pattern in (_PYTHON, _JAVA):
        if found := pattern.findall(text):
            name, message = found[-1]
            return f"{name}: {message.strip().rstrip('.')}"
    return (text.strip() or type(error).__name__).splitlines()[0].rstrip(".")
