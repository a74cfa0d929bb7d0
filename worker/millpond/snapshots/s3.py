"""A bucket of an S3-compatible object store, through `obstore`."""

# ruff: noqa: BLE001  (errors of obstore and of its Rust parts have no base class of their own)

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from millpond.errors import SnapshotError

from .local_copy import LocalCopy
from .locations import MAX_BYTES, too_large

if TYPE_CHECKING:
    from .locations import OnBytes

__all__ = ("Bucket", "bucket_options")

_CHUNK = 8 << 20
_LARGEST_REQUEST = 256 << 20
_TIMEOUT = timedelta(seconds=60)
_RETRY_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_RETRIES = 5
#: Options of obstore, by the environment variables that every S3 client understands.
_OPTIONS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
    "AWS_DEFAULT_REGION": "region",
    "AWS_ENDPOINT_URL_S3": "endpoint",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ENDPOINT": "endpoint",
}
#: Texts of obstore's errors: a bucket does not exist; the server does not answer; the cause of that.
_NOT_FOUND = re.compile(r"status code: 404|NoSuchBucket")
_UNREACHABLE = re.compile(r"error sending request|HttpError \{ kind: (?:Connect|Timeout)")
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"')
#: The address from which a client without credentials requests those of its machine (AWS's metadata service).
_METADATA_SERVICE = "169.254.169.254"
_SECRET = ("access_key_id", "secret_access_key", "session_token")


class Bucket:
    """A prefix in a bucket; see `millpond.snapshots.locations.Location`."""

    def __init__(self, uri: str, bucket: str, prefix: str, credentials_dir: Path | str | None) -> None:
        """Prepare access; no request is sent yet.

        Raises:
            SnapshotError: `obstore` is not installed, or the settings are not usable.
        """
        self.uri = uri
        if not bucket:
            raise SnapshotError(f"the location '{uri}' names no bucket: use s3://bucket/prefix")
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError as error:
            raise SnapshotError(
                f"the location '{uri}' needs the package obstore: install it with pip install 'millpond[spark]'"
            ) from error
        self._api: Any = obstore
        options = bucket_options(credentials_dir)
        self._secrets = [options[name] for name in _SECRET if options.get(name)]
        plain = options.get("endpoint", "").startswith("http://")
        self._server = "the object store"
        settings: Any = {"region": "us-east-1", **options}
        try:
            if host := urlsplit(options.get("endpoint", "")).netloc.rpartition("@")[2]:  # a password may precede it
                self._server += f" at {host}"
            self._store: Any = S3Store(
                bucket,
                prefix=prefix or None,
                client_options={"timeout": _TIMEOUT, "connect_timeout": _CONNECT_TIMEOUT, "allow_http": plain},
                retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_TIMEOUT},
                # Servers other than AWS rarely have a DNS name for each bucket.
                virtual_hosted_style_request="endpoint" not in options,
                **settings,
            )
        except Exception as error:
            self._fail("open", "", error)

    def put_file(self, local: Path, path: str) -> None:
        """See `Location`."""
        try:
            # In one request, unless it would take too much memory: some servers do not support multipart uploads.
            large = local.stat().st_size > _LARGEST_REQUEST
            self._api.put(self._store, path, local, use_multipart=large)
        except Exception as error:
            self._fail("write", path, error)

    def put(self, path: str, data: bytes) -> None:
        """See `Location`."""
        try:
            self._api.put(self._store, path, data, use_multipart=False)
        except Exception as error:
            self._fail("write", path, error)

    def get(self, path: str, max_bytes: int = MAX_BYTES) -> bytes:
        """See `Location`."""
        try:
            found = self._api.get(self._store, path)
            size = int(found.meta["size"])
            if size > max_bytes:
                raise too_large(path, self.uri, size, max_bytes)
            return bytes(found.bytes())
        except SnapshotError:
            raise
        except Exception as error:
            self._fail("read", path, error)

    def fetch(self, path: str, local: Path, on_bytes: OnBytes | None = None) -> None:
        """See `Location`."""
        size = self._size(path)
        with LocalCopy(local) as copy:
            at = copy.begin(size)
            while at < size:
                data = self._range(path, at, min(at + _CHUNK, size))
                copy.add(data)
                at += len(data)
                if on_bytes is not None:
                    on_bytes(len(data))
            copy.finish()

    def list(self, prefix: str = "") -> list[tuple[str, int]]:
        """See `Location`."""
        try:
            pages = self._api.list(self._store, prefix=prefix or None)
            return sorted((str(each["path"]), int(each["size"])) for page in pages for each in page)
        except Exception as error:
            self._fail("list", prefix, error)

    def folders(self, prefix: str) -> builtins.list[str]:
        """See `Location`."""
        try:
            found = self._api.list_with_delimiter(self._store, prefix=prefix or None)
            return sorted(str(each).rstrip("/").rsplit("/", 1)[-1] for each in found["common_prefixes"])
        except Exception as error:
            self._fail("list", prefix, error)

    def exists(self, path: str) -> bool:
        """See `Location`."""
        try:
            self._api.head(self._store, path)
        except FileNotFoundError:
            return False
        except Exception as error:
            self._fail("read", path, error)
        return True

    def _size(self, path: str) -> int:
        try:
            return int(self._api.head(self._store, path)["size"])
        except Exception as error:
            self._fail("read", path, error)

    def _range(self, path: str, start: int, end: int) -> memoryview:
        try:
            data = memoryview(self._api.get_range(self._store, path, start=start, end=end))
        except Exception as error:
            self._fail("read", path, error)
        if not data:
            raise SnapshotError(
                f"cannot read '{path}' in '{self.uri}': the file became shorter while it was read; make a new snapshot"
            )
        return data

    def delete(self, paths: Iterable[str]) -> None:
        """See `Location`."""
        # One by one: not every server supports the request that deletes many files.
        for path in paths:
            try:
                self._api.delete(self._store, path)
            except FileNotFoundError:
                continue
            except Exception as error:
                self._fail("delete", path, error)

    def _fail(self, action: str, path: str, error: Exception) -> NoReturn:
        kind = type(error).__name__
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "…")
        if isinstance(error, FileNotFoundError) or kind == "NotFoundError" or _NOT_FOUND.search(text):
            reason = "the file or bucket does not exist; check the location"
        elif not self._secrets and _METADATA_SERVICE in text:
            reason = (
                "no credentials are set, and this machine has no role of its own; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or name a directory with files of these names"
            )
        elif kind in ("PermissionDeniedError", "UnauthenticatedError") or "SignatureDoesNotMatch" in text:
            reason = (
                "the credentials were rejected; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and the bucket's "
                "policy"
            )
        elif isinstance(error, OSError) and error.strerror:
            reason = f"{error.strerror}; check the local disk"
        elif _UNREACHABLE.search(text):
            found = _CAUSE.search(text)
            cause = found[1] if found else "no connection"
            reason = f"{self._server} does not answer ({cause}); check AWS_ENDPOINT_URL and the network"
        else:
            text = text.partition(" Debug source:")[0]
            reason = f"{text[:300]}; check AWS_ENDPOINT_URL, and the object store's log"
        at = f" '{path}'" if path else ""
        # Without the cause: its text may have credentials in it.
        raise SnapshotError(f"cannot {action}{at} in '{self.uri}': {reason}") from None


def bucket_options(credentials_dir: Path | str | None) -> dict[str, str]:
    """Return obstore's options from the environment and from a directory of files, secrets in clear.

    Args:
        credentials_dir: see `open_location`.

    Raises:
        SnapshotError: the directory or a file in it cannot be read.
    """
    given: Mapping[str, str] = {name: os.environ[name] for name in _OPTIONS if os.environ.get(name)}
    if credentials_dir is not None:
        try:
            files = {each.name: each for each in Path(credentials_dir).iterdir()}
            read = {name: files[name].read_text(encoding="utf-8").strip() for name in _OPTIONS if name in files}
        except (OSError, UnicodeDecodeError) as error:
            raise SnapshotError(
                f"the credentials in '{credentials_dir}' cannot be read ({error}): mount the Secret there, or correct "
                "the path"
            ) from error
        given = {**given, **{name: value for name, value in read.items() if value}}
    options: dict[str, str] = {}
    for name, option in _OPTIONS.items():
        if name in given:
            options.setdefault(option, given[name])
    return options
