"""Accounts and their transfers: what the worker processes. HTTP is in main.py."""

import millpond as mp


class Transfer(mp.Struct):
    """What is paid to an account, or from it if it is negative. The key is the account."""

    id: str
    cents: int
    purpose: str = ""


class Balance(mp.Struct, frozen=True):
    cents: int = 0
    transfers: int = 0


class Book(mp.FixedKeyProcessor[str, Transfer, Balance]):
    """Forwards the new balance for each transfer. One that a client has sent twice counts once."""

    stores = (
        mp.KeyValueStoreBuilder(name="balances", key=mp.String, value=mp.Json(Balance)),
        mp.KeyValueStoreBuilder(name="booked", key=mp.Json(tuple[str, str]), value=mp.Json(Transfer)),
    )

    def init(self, context: mp.FixedKeyProcessorContext[str, Balance]) -> None:
        self.forward = context.forward
        self.balances = context.get_state_store("balances", mp.KeyValueStore[str, Balance])
        self.booked = context.get_state_store("booked", mp.KeyValueStore[tuple[str, str], Transfer])
        self.conflicts = context.metrics.counter("transfers_conflicting", "Ids that came again with another transfer.")

    def process(self, record: mp.FixedKeyRecord[str, Transfer]) -> None:
        account, transfer = record.key, record.value
        known = self.booked.put_if_absent((account, transfer.id), transfer)
        if known is not None:
            if known != transfer:  # the first one counts; /accounts/…/transfers/… shows it
                self.conflicts.inc()
            return
        before = self.balances.get(account) or Balance()
        balance = Balance(before.cents + transfer.cents, before.transfers + 1)
        self.balances.put(account, balance)
        self.forward(record.with_value(balance))


def accounts() -> mp.Topology:
    builder = mp.StreamsBuilder()
    transfers = builder.stream("transfers", key=mp.String, value=mp.Json(Transfer))
    transfers.process_values(Book, name="book").to("balances", key=mp.String, value=mp.Json(Balance))
    return builder.build()
