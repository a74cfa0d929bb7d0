"""Snapshots of an application's stores: SST files and a manifest, in a directory or an object store."""
