"""The state catalog: reads Apache Iceberg tables of stores at past moments, which the snapshot job writes."""
