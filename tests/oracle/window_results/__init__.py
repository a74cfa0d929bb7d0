"""Cogroups and final results of windows, compared with Kafka Streams': descriptions, results, changelogs' bytes."""
