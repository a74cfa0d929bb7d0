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
from .memory.backend import MemoryBackend as MemoryBackend
from .rocksdb.options import StateFileOptions as StateFileOptions
from .rocksdb.state_file import StateFile as StateFile
from .stores.key_value import KeyValueStore as KeyValueStore
from .stores.key_value import TimestampedKeyValueStore as TimestampedKeyValueStore
from .stores.time_ordered_buffer import Pending as Pending
from .stores.time_ordered_buffer import TimeOrderedBuffer as TimeOrderedBuffer
from .stores.window import TimestampedWindowStore as TimestampedWindowStore
from .stores.window import WindowStore as WindowStore
from .values import ValueAndTimestamp as ValueAndTimestamp
