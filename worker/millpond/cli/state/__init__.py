"""`millpond state`: verify, export and show stores of snapshots, of running workers, and of stopped ones."""
