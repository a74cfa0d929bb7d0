"""Records with schema ids in headers: rows of a snapshot have no headers, so the job refuses them."""

from __future__ import annotations

from typing import Any

import pytest

from millpond_spark import changelog_reader, reduce

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # pyspark leaves them to the collector
]


@pytest.mark.parametrize("schema_ids", [True, False])
def test_a_record_whose_schema_id_is_in_a_header_is_refused(spark: Any, *, schema_ids: bool) -> None:
    """The error names the record; a table whose serdes take no id from headers is read."""
    headers = [("__value_schema_id", b"\1" * 17)]
    records = spark.createDataFrame(
        [("in", 0, 4, b"a", b"x", 5, None), ("in", 0, 5, b"b", b"x", 5, headers)], changelog_reader.RECORDS
    )
    source = reduce.ChangelogSource(0, "in", 0, 0, 9, windowed=False, has_format=False, schema_ids=schema_ids)
    changes = reduce.changes_of(spark, records, [source])
    if schema_ids:
        with pytest.raises(Exception, match=r"schema ids into headers.*topic in, partition 0, offset 5"):
            changes.collect()
    else:
        assert sorted(bytes(row["key"]) for row in changes.collect()) == [b"a", b"b"]
