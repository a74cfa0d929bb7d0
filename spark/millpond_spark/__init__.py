"""Snapshots of an application's state, built by Spark from the application's changelogs.

`millpond_spark.job.create_snapshot` is the whole of it. The driver finds out where the changelogs end, the JVM reduces them to the
newest record of each key, and executors write SST files and upload them. See docs/snapshots.md.
"""
