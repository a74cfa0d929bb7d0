"""The bodies of aggregations by sliding and unlimited windows, and of those that send final results only."""
