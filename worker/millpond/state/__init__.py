"""State stores: staged in memory, logged to a changelog, committed to one local database per worker."""

from millpond.state.memory.backend import MemoryBackend as MemoryBackend
from millpond.state.rocksdb.options import StateFileOptions as StateFileOptions
from millpond.state.rocksdb.state_file import StateFile as StateFile
from millpond.state.stores.buffers.join_buffer import JoinBuffer as JoinBuffer
from millpond.state.stores.buffers.join_buffer import Waiting as Waiting
from millpond.state.stores.buffers.time_ordered_buffer import Pending as Pending
from millpond.state.stores.buffers.time_ordered_buffer import TimeOrderedBuffer as TimeOrderedBuffer
from millpond.state.stores.key_value import KeyValueStore as KeyValueStore
from millpond.state.stores.key_value import TimestampedKeyValueStore as TimestampedKeyValueStore
from millpond.state.stores.outer_join import OuterJoinStore as OuterJoinStore
from millpond.state.stores.session import SessionStore as SessionStore
from millpond.state.stores.versioned.store import IS_LATEST as IS_LATEST
from millpond.state.stores.versioned.store import NOT_PUT as NOT_PUT
from millpond.state.stores.versioned.store import VersionedKeyValueStore as VersionedKeyValueStore
from millpond.state.stores.versioned.store import VersionedRecord as VersionedRecord
from millpond.state.stores.window import TimestampedWindowStore as TimestampedWindowStore
from millpond.state.stores.window import WindowStore as WindowStore

from .backend import Backend as Backend
from .backend import Row as Row
from .backend import Rows as Rows
from .backend import Written as Written
from .builders import JoinBufferBuilder as JoinBufferBuilder
from .builders import KeyValueStoreBuilder as KeyValueStoreBuilder
from .builders import OuterJoinStoreBuilder as OuterJoinStoreBuilder
from .builders import SessionStoreBuilder as SessionStoreBuilder
from .builders import SlidingWindowStoreBuilder as SlidingWindowStoreBuilder
from .builders import StoreBuilder as StoreBuilder
from .builders import SubscriptionStoreBuilder as SubscriptionStoreBuilder
from .builders import TimeOrderedBufferBuilder as TimeOrderedBufferBuilder
from .builders import VersionedKeyValueStoreBuilder as VersionedKeyValueStoreBuilder
from .builders import WindowStoreBuilder as WindowStoreBuilder
from .formats import RecordContext as RecordContext
from .own_stores import StateStore as StateStore
from .own_stores import StateStoreBuilder as StateStoreBuilder
from .values import ValueAndTimestamp as ValueAndTimestamp
