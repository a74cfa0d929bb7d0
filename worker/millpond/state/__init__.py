"""State stores: staged in memory, logged to a changelog, committed to one local database per worker."""

from .backend import Backend as Backend
from .backend import Row as Row
from .backend import Rows as Rows
from .backend import Written as Written
from .builders import KeyValueStoreBuilder as KeyValueStoreBuilder
from .builders import StoreBuilder as StoreBuilder
from .builders import TimeOrderedBufferBuilder as TimeOrderedBufferBuilder
from .builders import WindowStoreBuilder as WindowStoreBuilder
from .formats import RecordContext as RecordContext
from .keyvalue import KeyValueStore as KeyValueStore
from .keyvalue import TimestampedKeyValueStore as TimestampedKeyValueStore
from .memory import MemoryBackend as MemoryBackend
from .rocksdb import StateFile as StateFile
from .timeordered import Pending as Pending
from .timeordered import TimeOrderedBuffer as TimeOrderedBuffer
from .tuning import StateFileOptions as StateFileOptions
from .values import ValueAndTimestamp as ValueAndTimestamp
from .window import TimestampedWindowStore as TimestampedWindowStore
from .window import WindowStore as WindowStore
