"""The state catalog: Apache Iceberg tables of stores at past moments, written by the snapshot job; reading them."""
