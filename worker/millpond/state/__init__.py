"""State stores: staged in memory, logged to a changelog, committed to one local database per worker."""

from millpond.state.backend import Backend as Backend
from millpond.state.backend import Row as Row
from millpond.state.backend import Rows as Rows
from millpond.state.backend import Written as Written
from millpond.state.builders import KeyValueStoreBuilder as KeyValueStoreBuilder
from millpond.state.builders import StoreBuilder as StoreBuilder
from millpond.state.builders import TimeOrderedBufferBuilder as TimeOrderedBufferBuilder
from millpond.state.builders import WindowStoreBuilder as WindowStoreBuilder
from millpond.state.formats import RecordContext as RecordContext
from millpond.state.keyvalue import KeyValueStore as KeyValueStore
from millpond.state.keyvalue import TimestampedKeyValueStore as TimestampedKeyValueStore
from millpond.state.memory import MemoryBackend as MemoryBackend
from millpond.state.rocksdb import StateFile as StateFile
from millpond.state.timeordered import Pending as Pending
from millpond.state.timeordered import TimeOrderedBuffer as TimeOrderedBuffer
from millpond.state.tuning import StateFileOptions as StateFileOptions
from millpond.state.values import ValueAndTimestamp as ValueAndTimestamp
from millpond.state.window import TimestampedWindowStore as TimestampedWindowStore
from millpond.state.window import WindowStore as WindowStore
