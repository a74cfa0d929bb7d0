"""The properties with which Iceberg's libraries access the files of a location (FileIO), in Java and in Python."""

from __future__ import annotations

from pathlib import Path

from millpond.snapshots.s3 import bucket_options

__all__ = ("file_properties",)


def file_properties(uri: str, credentials_dir: Path | str | None) -> dict[str, str]:
    """Return Iceberg's properties for a location, with credentials; none for a directory.

    Args:
        uri: the URI of the location.
        credentials_dir: see `open_location`.

    Raises:
        SnapshotError: the credentials cannot be read.
    """
    if not uri.startswith("s3://"):
        return {}
    options = bucket_options(credentials_dir)  # the names are obstore's
    region = options.get("region", "us-east-1")
    properties = {
        "client.region": region,  # Java's name
        "s3.region": region,  # Python's name
        "s3.path-style-access": str("endpoint" in options).lower(),
    }
    names = {
        "endpoint": "s3.endpoint",
        "access_key_id": "s3.access-key-id",
        "secret_access_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
    }
    return properties | {name: options[option] for option, name in names.items() if option in options}
