package org.apache.kafka.streams.state.internals;

import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueStore;

/** A versioned store that flush() does not write to disk. It is in this package to reach the store. */
public final class UnflushedVersions extends VersionedKeyValueToBytesStoreAdapter {
    private UnflushedVersions(final VersionedKeyValueToBytesStoreAdapter store) { super(store.inner); }

    public static KeyValueStore<Bytes, byte[]> of(final KeyValueStore<Bytes, byte[]> store) {
        return new UnflushedVersions((VersionedKeyValueToBytesStoreAdapter) store);
    }

    @Override
    public void flush() { }
}
