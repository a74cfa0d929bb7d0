"""Snapshots of an application's state, built by Spark from the application's changelogs.

`millpond_spark.job.create_snapshot` is the entry point. The driver reads the end offsets of the changelogs, the JVM
reduces them to the newest record of each key, and executors write SST files and upload them. See docs/snapshots.md.
"""
