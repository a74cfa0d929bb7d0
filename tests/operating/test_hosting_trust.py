"""The certificate authority without an API server: deleted, damaged, foreign and expiring certificates."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from millpond_operator.controllers.coordinator_host.tls.authority import CertificateAuthority, Kept, looked_after
from millpond_operator.controllers.coordinator_host.tls.certificates import Certificates, issued
from millpond_operator.kubernetes import AlreadyExists, Conflict, NotFound, Object
from tests.simulation.running import simulate

HOSTS = ("millpond-coordinator.millpond-system.svc", "millpond-coordinator.millpond-system")
NOW = datetime(2026, 11, 21, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def ours() -> Kept:
    return Kept(issued(HOSTS, NOW))


@pytest.fixture(scope="module")
def theirs() -> Certificates:
    return issued(HOSTS, NOW)


def test_a_first_leader_makes_an_authority_and_a_certificate() -> None:
    """The next leader continues with both."""
    kept = looked_after(None, None, HOSTS, NOW)
    assert kept.current.serves(NOW)
    assert kept.current.signs(NOW)
    assert kept.following is None
    assert Kept.of({"data": kept.as_data()}) == kept
    assert looked_after(None, kept, HOSTS, NOW) == kept


@pytest.mark.parametrize("field", ["ca", "ca_key", "certificate", "key"])
@pytest.mark.parametrize("damage", ["", "-----BEGIN NOTHING-----", "another's"])
def test_leader_restores_a_damaged_secret(field: str, damage: str, ours: Kept, theirs: Certificates) -> None:
    """A part of it is missing, unreadable or does not fit the rest."""
    text = getattr(theirs, field) if damage == "another's" else damage
    assert looked_after(ours, Kept(replace(ours.current, **{field: text})), HOSTS, NOW) == ours
    assert looked_after(ours, None, HOSTS, NOW) == ours


@pytest.mark.parametrize(("field", "the_same"), [("ca", False), ("ca_key", True), ("certificate", True), ("key", True)])
def test_new_leader_repairs_a_damaged_authority(field: str, the_same: bool, ours: Kept) -> None:
    """Clients that trust it stay served; an authority without a key gets a successor before its certificate expires."""
    kept = looked_after(None, Kept(replace(ours.current, **{field: "-"})), HOSTS, NOW)
    assert kept.current.serves(NOW)
    assert kept.current.same_authority(ours.current) is the_same
    assert (kept.following is not None) == (field == "ca_key")


def test_new_authority_is_published_before_it_is_used(ours: Kept, theirs: Certificates) -> None:
    """It is kept beside the current one, also by the next leader, and workers get both."""
    kept = looked_after(ours, Kept(theirs), HOSTS, NOW)
    assert (kept.current, kept.following) == (ours.current, theirs)
    assert ours.current.ca.strip() in kept.bundle
    assert theirs.ca.strip() in kept.bundle
    assert looked_after(None, Kept.of({"data": kept.as_data()}), HOSTS, NOW) == kept
    assert looked_after(kept, kept, HOSTS, NOW) == kept


def test_certificate_is_renewed_long_before_it_expires(ours: Kept) -> None:
    """Its validity never exceeds that of the authority."""
    assert looked_after(ours, ours, HOSTS, NOW + 59 * DAY) == ours
    kept = looked_after(ours, ours, HOSTS, NOW + 61 * DAY)
    assert kept.current.same_authority(ours.current)
    assert kept.current.serves(NOW + 140 * DAY)
    assert looked_after(ours, ours, ("other.svc",), NOW).current.same_authority(ours.current)


def test_expiring_authority_gets_a_successor_first(ours: Kept) -> None:
    """The authority stays in use until then; if it expires before, the successor is used at once."""
    soon = NOW + 3_500 * DAY
    kept = looked_after(ours, ours, HOSTS, soon)
    assert kept.current.same_authority(ours.current)
    assert kept.current.serves(soon)
    assert kept.following is not None
    late = NOW + 3_651 * DAY
    assert looked_after(kept, kept, HOSTS, late).current.same_authority(kept.following)
    for known in (ours, None):
        kept = looked_after(known, ours, HOSTS, late)
        assert kept.current.serves(late)
        assert not kept.current.same_authority(ours.current)


class Secrets:
    """One Secret at the API server."""

    def __init__(self) -> None:
        self.secret: Object | None = None
        self.writes = 0
        self.interferes: Kept | None = None
        """Let another client write this just before the next write."""

    def put(self, kept: Kept) -> None:
        self.writes += 1
        self.secret = {"metadata": {"resourceVersion": str(self.writes)}, "data": kept.as_data()}

    async def get(self, *_: object) -> Object:
        if self.secret is None:
            raise NotFound("none")
        return self.secret

    async def create(self, _kind: object, object: Object) -> Object:
        self._interfere()
        if self.secret is not None:
            raise AlreadyExists("one is there")
        return self._write(object)

    async def replace(self, _kind: object, object: Object) -> Object:
        self._interfere()
        assert self.secret is not None
        if object["metadata"]["resourceVersion"] != self.secret["metadata"]["resourceVersion"]:
            raise Conflict("another version")
        return self._write(object)

    def _interfere(self) -> None:
        if self.interferes is not None:
            self.put(self.interferes)
            self.interferes = None

    def _write(self, object: Object) -> Object:
        kept = Kept.of(object)
        assert kept is not None
        self.put(kept)
        return object


class Scene:
    """A leader's certificate authority and the time."""

    def __init__(self, secrets: Secrets) -> None:
        self.now = NOW
        self.lacking: list[str] = []
        self.told: list[str] = []
        self.trust = CertificateAuthority(
            secrets,  # type: ignore[arg-type]
            "millpond-system",
            "tls",
            HOSTS,
            spread=timedelta(minutes=3),
            lacking=lambda _: self.lacking,
            on_change=self.told.append,
            clock=lambda: self.now,
        )


def test_new_authority_waits_until_all_workers_trust_it(ours: Kept, theirs: Certificates) -> None:
    """It waits until the ConfigMaps of all workers contain it, and then for the time that workers need to load them."""

    async def scenario() -> None:
        secrets = Secrets()
        secrets.put(ours)
        scene = Scene(secrets)
        await scene.trust.begin()
        assert secrets.writes == 1
        secrets.put(Kept(theirs))
        scene.lacking = ["shop/pay-coordinator"]
        for _ in range(20):
            await scene.trust.look()
            scene.now += timedelta(minutes=1)
            assert Kept.of(await secrets.get()) == Kept(ours.current, theirs)
        assert scene.told == [Kept(ours.current, theirs).bundle]
        scene.lacking = []
        await scene.trust.look()
        scene.now += timedelta(minutes=2)
        await scene.trust.look()
        assert scene.trust.bundle == scene.told[0]
        scene.now += timedelta(minutes=1)
        await scene.trust.look()
        assert Kept.of(await secrets.get()) == Kept(theirs)
        assert scene.told[1:] == [theirs.ca]
        writes = secrets.writes
        await scene.trust.look()
        assert secrets.writes == writes

    simulate(scenario())


@pytest.mark.parametrize("there", [False, True])
def test_second_operator_adopts_the_first_ones_authority(there: bool, ours: Kept) -> None:
    """Both operators use the same authority."""

    async def scenario() -> None:
        secrets = Secrets()
        if there:
            secrets.put(Kept(replace(ours.current, ca="", certificate="")))
        secrets.interferes = ours
        scene = Scene(secrets)
        await scene.trust.begin()
        assert Kept.of(await secrets.get()) == ours
        assert scene.trust.bundle == ours.bundle

    simulate(scenario())
