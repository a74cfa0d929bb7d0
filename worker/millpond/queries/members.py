"""The query addresses of an application's workers, from its coordinator."""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from millpond.errors import ConfigError, MillpondError
from millpond.protocol import View

__all__ = ("Coordinator",)


@dataclass(frozen=True)
class Coordinator:
    """The coordinator of an application.

    Raises:
        ConfigError: the URL is not one of HTTP, or the application is not named.
    """

    url: str
    application_id: str
    token_file: Path | None = None
    """The file of the token for the coordinator, which is read for each request."""
    ca_file: Path | None = None
    """Certificate authorities to trust (PEM); None for those of the system."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"the coordinator's URL '{self.url}' should look like http://localhost:7070.")
        if not self.application_id:
            raise ConfigError("a coordinator needs the application's id, too: give both.")

    def workers(self, timeout_s: float) -> tuple[str, ...]:
        """Return the base URLs of the live workers that answer queries.

        Args:
            timeout_s: how long the coordinator may take.

        Raises:
            MillpondError: the coordinator did not list the workers, or none of them serves HTTP.
        """
        path = f"/v1/applications/{quote(self.application_id, safe='')}/assignment"
        request = urllib.request.Request(self.url.rstrip("/") + path)  # noqa: S310 - http, as checked
        try:
            if self.token_file is not None:
                request.add_header("Authorization", f"Bearer {self.token_file.read_text().strip()}")
            context = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None
            with urllib.request.urlopen(request, timeout=timeout_s, context=context) as answer:  # noqa: S310
                view = msgspec.json.decode(answer.read(), type=View)
        except (OSError, msgspec.MsgspecError) as error:
            raise MillpondError(
                f"the coordinator at {self.url} does not list the workers of '{self.application_id}' ({error}): check "
                "the URL, the application and the token."
            ) from error
        found = tuple(each.address for each in view.members if each.alive and each.address)
        if not found:
            raise MillpondError(f"no worker of '{self.application_id}' serves HTTP: set 'http.port'.")
        return found
