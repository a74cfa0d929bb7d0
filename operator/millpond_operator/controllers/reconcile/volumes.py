"""The growth of volumes: claims that are smaller than `spec.state.size` are patched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond_operator.controllers.rollout.problems import Problem
from millpond_operator.kubernetes import Cache, Client, Forbidden, Invalid, Object, kinds
from millpond_operator.resources import StreamApp, claim_growth, claim_of, digest

__all__ = ("VolumeGrowth",)

#: How long after a rejection a claim is not tried again, unless the StreamApp changes.
_RETRY_AFTER_S = 50.0
#: After so many rejections in a pass the other claims are not tried.
_MAX_REJECTIONS = 3


@dataclass(frozen=True)
class _Rejection:
    """The rejected growth of one claim."""

    wanted: str
    """The digest of the wanted size and the StreamApp's generation."""
    at: float
    problem: Problem


class VolumeGrowth:
    """Lets the volumes of applications grow.

    Args:
        client: patches claims; its responses go to the cache.
        cache: the known objects.
        clock: returns monotonic seconds.
    """

    def __init__(self, client: Client, cache: Cache, clock: Callable[[], float]) -> None:
        self._client = client
        self._cache = cache
        self._clock = clock
        self._rejections: dict[tuple[str, str], dict[str, _Rejection]] = {}
        """By application, and by the claim's uid."""

    def forget(self, namespace: str, name: str) -> None:
        """Forget a deleted StreamApp."""
        self._rejections.pop((namespace, name), None)

    async def grow(self, app: StreamApp) -> Problem | None:
        """Let the volumes of an application grow to their wanted size.

        Returns:
            Why a volume cannot grow; None when all can.

        Raises:
            ApiError: a claim could not be patched for another reason than a rejection of its size.
        """
        small = {
            claim["metadata"]["uid"]: (claim, patch)
            for claim in self._cache.of_app(kinds.PERSISTENT_VOLUME_CLAIM, app.namespace, app.name)
            if claim_of(app, claim) and claim.get("status", {}).get("phase") == "Bound"
            if (patch := claim_growth(app, claim)) is not None
        }
        key = (app.namespace, app.name)
        rejections = {uid: each for uid, each in self._rejections.pop(key, {}).items() if uid in small}
        wanted = digest([app.spec.state.size, app.generation, dict(app.annotations)])
        now, rejected = self._clock(), 0
        for uid in sorted(small, key=lambda uid: rejections[uid].at if uid in rejections else 0.0):
            last = rejections.get(uid)
            if rejected == _MAX_REJECTIONS or (last and last.wanted == wanted and now < last.at + _RETRY_AFTER_S):
                continue
            rejections.pop(uid, None)
            problem = await self._grow(app, *small[uid])
            if problem is not None:
                rejections[uid] = _Rejection(wanted, now, problem)
                rejected += 1
        if not rejections:
            return None
        self._rejections[key] = rejections
        return next(rejections[uid].problem for uid in small if uid in rejections)

    async def _grow(self, app: StreamApp, claim: Object, patch: Object) -> Problem | None:
        name = claim["metadata"]["name"]
        try:
            grown = await self._client.patch(kinds.PERSISTENT_VOLUME_CLAIM, app.namespace, name, patch)
        except (Forbidden, Invalid) as error:
            return Problem(
                "VolumeNotExpandable",
                f"Volume claim '{name}' cannot grow to {app.spec.state.size} ({error}): set allowVolumeExpansion in "
                "its storage class, or raise the quota that forbids it.",
                persistent=True,
            )
        self._cache.put(kinds.PERSISTENT_VOLUME_CLAIM, grown)
        return None
