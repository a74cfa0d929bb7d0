"""The web service: transfers come in by HTTP, and balances are read from the stores of the worker inside.

uvicorn examples.service.main:api --factory --port 8000
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
from confluent_kafka import KafkaException
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field

import millpond as mp
from examples.service.app import Balance, Transfer, accounts
from examples.service.inbox import Inbox
from millpond.errors import WorkerStateError
from millpond.queries.failures import QueryFailed

__all__ = ("api", "service")

SETTINGS = Path(__file__).parent / "millpond.toml"


class Payment(BaseModel):
    """The body of a request, which FastAPI checks."""

    cents: int = Field(description="paid to the account; negative: from the account")
    purpose: str = Field("", max_length=200)


class Accepted(BaseModel):
    """The transfer's place in its topic."""

    partition: int
    offset: int


class Account(BaseModel):
    account: str
    cents: int
    transfers: int


class State(BaseModel):
    state: str


def api() -> FastAPI:
    """Return the service with the settings of millpond.toml and of the environment."""
    config = mp.Config.load(SETTINGS)
    return service(mp.Worker(accounts(), config), Inbox(config.bootstrap_servers))


def service(worker: mp.Worker, inbox: Inbox) -> FastAPI:
    """Return the service; it starts a worker and an inbox, and ends them."""

    @asynccontextmanager
    async def running(_api: FastAPI) -> AsyncGenerator[None, None]:
        inbox.start()
        worker.start()  # in a thread of its own
        try:
            yield
        finally:  # all requests have ended
            await asyncio.to_thread(inbox.close)
            await asyncio.to_thread(worker.close)  # commits what it has processed

    app = FastAPI(title="Accounts", lifespan=running)

    @app.put("/accounts/{account}/transfers/{id}", status_code=202)
    async def transfer(account: str, id: str, payment: Payment) -> Accepted:
        """Accept a transfer: Kafka has it when this returns. It may be sent again under its id, and counts once."""
        value = msgspec.json.encode(Transfer(id, payment.cents, payment.purpose))
        try:
            partition, offset = await inbox.send("transfers", account.encode(), value)
        except (KafkaException, BufferError) as error:
            raise HTTPException(503, f"Nobody knows whether Kafka has the transfer: send it again. {error}") from error
        return Accepted(partition=partition, offset=offset)

    _add_reads(app, worker)
    _add_health(app, worker)
    return app


def _add_reads(app: FastAPI, worker: mp.Worker) -> None:
    # These are no coroutines: FastAPI calls them in a thread, since stores are on disk.

    @app.get("/accounts/{account}")
    def balance(account: str) -> Account:
        """Return the balance: of all transfers that are committed."""
        with _reading():
            found = worker.store("balances", mp.KeyValueStore[str, Balance]).get(account)
        if found is None:
            raise HTTPException(404, f"Account {account} has no transfers.")
        return Account(account=account, cents=found.cents, transfers=found.transfers)

    @app.get("/accounts/{account}/transfers/{id}")
    def booked(account: str, id: str) -> Payment:
        """Return the transfer that counts under an id."""
        with _reading():
            found = worker.store("booked", mp.KeyValueStore[tuple[str, str], Transfer]).get((account, id))
        if found is None:
            raise HTTPException(404, f"Transfer {id} of account {account} does not count, or not yet.")
        return Payment(cents=found.cents, purpose=found.purpose)


@contextmanager
def _reading() -> Generator[None, None, None]:
    """Tell clients that stores cannot be read while the worker starts, restores or ends."""
    try:
        yield
    except (QueryFailed, WorkerStateError) as error:
        raise HTTPException(503, str(error)) from error


def _add_health(app: FastAPI, worker: mp.Worker) -> None:
    @app.get("/live")
    def live() -> State:
        """Answer with 503 when the worker has failed: then the service has to be started again."""
        if worker.exception is not None:
            raise HTTPException(503, f"{type(worker.exception).__name__}: {worker.exception}")
        return State(state=worker.state.value)

    @app.get("/ready")
    def ready() -> State:
        """Answer with 503 until all stores can be read."""
        if worker.state is not mp.WorkerState.RUNNING:
            raise HTTPException(503, f"The worker is {worker.state.value}.")
        return State(state=worker.state.value)
