"""Parcels: Avro with a schema registry, and schemas that change."""
