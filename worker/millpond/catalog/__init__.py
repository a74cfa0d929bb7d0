"""Tables of an application's stores at past moments: Apache Iceberg tables that the snapshot job writes, and how to read them."""
