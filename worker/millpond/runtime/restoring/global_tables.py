"""Global stores that are plain tables of their topics: their rows can be computed from the records. Pure."""

from __future__ import annotations

from typing import Any

from millpond.serdes import Serde
from millpond.snapshots.layouts import StoreLayout, covered, layout_of
from millpond.state.builders import VersionedKeyValueStoreBuilder
from millpond.topology import FailOnInvalidTimestamp, GlobalStore

__all__ = ("global_layout", "reason_not_plain")


def reason_not_plain(definition: GlobalStore, default_extractor: Any) -> str | None:
    """Return the reason why a global store is not the newest records of its topic by key; None if it is.

    Args:
        definition: the definition of the store.
        default_extractor: the configured timestamp extractor; None for the records' own timestamps.

    Returns:
        A clause without its subject, the store.
    """
    if not getattr(definition.processor.body, "keeps_newest", False):
        return "is a global store that a processor fills"
    extractor = definition.source.timestamp_extractor or default_extractor
    if extractor is not None and not isinstance(extractor, FailOnInvalidTimestamp):
        return "is a global store with a timestamp extractor"
    store: Any = definition.store
    # The order of records of different partitions, on which a versioned store depends, is not known.
    if not covered(store) or isinstance(store, VersionedKeyValueStoreBuilder):
        return "is a global store of a kind that snapshots do not cover"
    return None


def global_layout(definition: GlobalStore, key: Serde[Any] | None, value: Serde[Any] | None) -> StoreLayout:
    """Return the layout of a global table's rows, which depends on its serdes.

    Args:
        definition: the definition of the store.
        key: the default serde of keys.
        value: the default serde of values.
    """
    source, store = definition.source, definition.store
    builder: Any = store
    read = (source.key or key, source.value or value)
    kept = (builder.key or key, builder.value or value)
    serdes = ", ".join(str(each) for each in (read if read == kept else read + kept))
    return layout_of(builder, is_global=True, serdes=serdes)
