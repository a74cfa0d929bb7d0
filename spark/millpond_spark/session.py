"""Start Spark, with jars from millpond's own cache, and without Spark's logs."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.broker import jars, java
from millpond.errors import SnapshotError
from millpond.snapshots import libraries

from .failures import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ("LOCAL", "new_session", "require_spark", "session", "silence_py4j")

LOCAL = "local[*]"
"""The master of Spark in this process, with an executor thread for each core."""

#: A job takes a minute or two on few cores, and the JVM's compiler would use a quarter of that: it compiles later than
#: by default. The user's `extraJavaOptions` follow these options, and override them.
_JVM = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000"
)
_SETTINGS = {
    "spark.driver.defaultJavaOptions": _JVM,
    "spark.executor.defaultJavaOptions": _JVM,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    # Executors read batches of rows, and write rows one by one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Files of one store partition should be of similar size: the bounds of key ranges come from a larger sample.
    "spark.sql.execution.rangeExchange.sampleSizePerPartition": "1000",
    # A killed attempt must not leave the job waiting.
    "spark.task.maxFailures": "4",
    # In addition to passwords, which Spark redacts by default.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LIBRARIES = ("pyspark", "pyarrow", "pandas")
_ROOTS = ("millpond", "millpond_spark")


@contextlib.contextmanager
def session(
    master: str = LOCAL, settings: Mapping[str, str] | None = None, *, catalog: str | None = None
) -> Iterator[SparkSession]:
    """Yield a Spark session that stops at the end of the block; arguments and errors as for `new_session`."""
    spark = new_session(master, settings, catalog=catalog)
    try:
        yield spark
    finally:
        spark.stop()


def require_spark() -> None:
    """Check that Spark's libraries are installed, before modules that need them are imported.

    Raises:
        SnapshotError: a library is not installed.
    """
    libraries.require_libraries(_LIBRARIES, "making a snapshot", "spark")


def new_session(
    master: str = LOCAL, settings: Mapping[str, str] | None = None, *, catalog: str | None = None
) -> SparkSession:
    """Start Spark.

    Args:
        master: `local[*]`, `local[2]`, or the address of a Spark master.
        settings: settings of Spark; they override those of millpond.
        catalog: the location of tables, for which Iceberg's jars are added; None for no tables.

    Raises:
        SnapshotError: Spark is not installed, or does not start.
        JavaNotFound: no installed Java is one that Spark supports.
        JarError: a jar cannot be fetched.
    """
    require_spark()
    home = java.find_jre()
    sets = ["spark"]
    if catalog is not None:
        sets += ["iceberg", "iceberg-s3"] if catalog.startswith("s3://") else ["iceberg"]
    files = [str(path) for name in sets for path in jars.paths(name)]
    from pyspark.sql import SparkSession

    silence_py4j()
    # Spark reads these when it starts the JVM and the executors' Python.
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = {**_SETTINGS, "spark.jars": ",".join(files)}
    if master.startswith("local"):
        given |= {**_LOCAL_SETTINGS, "spark.executorEnv.PYTHONPATH": os.pathsep.join(_import_path())}
    given |= settings or {}
    builder = SparkSession.builder.master(master).appName("millpond snapshot")
    for name, value in given.items():
        builder = builder.config(name, value)
    try:
        with _without_launcher_output():
            return builder.getOrCreate()
    except Exception as error:  # errors of Spark and of py4j, without a common base class
        raise SnapshotError(f"Spark does not start at {master} ({cause_of(error)}). Check --master.") from error


def silence_py4j() -> None:
    """Drop the logs of py4j, in its own loggers and in the root logger: py4j logs each error that it also raises."""
    logging.getLogger("py4j").propagate = False
    root = logging.getLogger()
    if _not_of_py4j not in root.filters:
        root.addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _import_path() -> list[str]:
    """Return the directories from which executors on this machine can import millpond."""
    found = []
    for name in _ROOTS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found.append(str(Path(spec.origin).parents[1]))
    return list(dict.fromkeys([*found, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))


@contextlib.contextmanager
def _without_launcher_output() -> Iterator[None]:
    """Drop what Spark's launcher prints to stderr before the log level applies."""
    sys.stderr.flush()
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
