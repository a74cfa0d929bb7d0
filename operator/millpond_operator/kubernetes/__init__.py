"""Access to the Kubernetes API: a client, a cache of objects, watches, and the leader's lease."""

from .cache import APP_LABEL, Cache, Key, key_of, version_of
from .client import FIELD_MANAGER, Client, Object, RequestMetrics
from .connection import Connection
from .errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    LeadershipLost,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    shortened,
)
from .kinds import Kind
from .lease import Lease, LeaseOptions

__all__ = (
    "APP_LABEL",
    "FIELD_MANAGER",
    "AlreadyExists",
    "ApiError",
    "Cache",
    "Client",
    "Conflict",
    "Connection",
    "Expired",
    "Forbidden",
    "Invalid",
    "Key",
    "Kind",
    "LeadershipLost",
    "Lease",
    "LeaseOptions",
    "NotFound",
    "Object",
    "RequestMetrics",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "key_of",
    "shortened",
    "version_of",
)
