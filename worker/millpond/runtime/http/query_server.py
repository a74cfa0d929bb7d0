"""The query service of a worker and its HTTP site, made from the `query.*` settings."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from millpond.errors import ConfigError
from millpond.queries.access import Access, server_context
from millpond.queries.service import QueryService
from millpond.runtime.config.model import Config

from .query_catalog import coordinator_view
from .server import HttpServer, HttpSite

__all__ = ("query_access", "query_interface")


def query_access(config: Config) -> Access:
    """Return the access settings for queries.

    Raises:
        ConfigError: the settings contradict each other.
    """
    if config.query_ssl_certificate_location is None:
        if config.query_ssl_key_location is not None:
            raise ConfigError("'query.ssl.key.location' needs 'query.ssl.certificate.location': set both, or neither.")
    elif config.query_port < 0:
        raise ConfigError(
            "'query.ssl.certificate.location' needs 'query.port': 'http.port' serves metrics and health without "
            "TLS, so set a separate port for queries."
        )
    return Access(
        token_file=config.query_token_file,
        certificate_file=config.query_ssl_certificate_location,
        key_file=config.query_ssl_key_location,
        ca_file=config.query_ssl_ca_location,
        max_concurrent=config.query_max_concurrent,
        max_duration_s=config.query_max_duration_ms / 1000,
    )


def query_interface(config: Config, http: HttpServer, registry: CollectorRegistry) -> tuple[QueryService, HttpSite]:
    """Make the query service of a worker and the HTTP site on which others reach it.

    Args:
        config: the configuration of the worker.
        http: the server of metrics and health.
        registry: where the query metrics are registered.

    Raises:
        ConfigError: a file cannot be used, or the settings contradict each other.
    """
    access = query_access(config)
    tls = server_context(access)
    service = QueryService(config.application_id, config.worker_id, registry, coordinator_view(config), access, tls)
    site = http.main
    if config.query_port >= 0:
        site = http.site(config.http_host, config.query_port, tls, "query.port")
    if config.query_port >= 0 or config.http_port >= 0:
        service.add_to(site)
    return service, site
