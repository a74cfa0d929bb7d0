import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.DslKeyValueParams;
import org.apache.kafka.streams.state.DslSessionParams;
import org.apache.kafka.streams.state.DslStoreSuppliers;
import org.apache.kafka.streams.state.DslWindowParams;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.SessionBytesStoreSupplier;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * Stores of cases that are to be quick: key-value stores are in memory, where they behave as on disk. Stores of windows
 * and sessions do not behave the same in both places, so they are where the case has them.
 */
public final class QuickStores implements DslStoreSuppliers {
    private final DslStoreSuppliers disk = new BuiltInDslStoreSuppliers.RocksDBDslStoreSuppliers();
    private final DslStoreSuppliers memory = new BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers();

    @Override
    public KeyValueBytesStoreSupplier keyValueStore(final DslKeyValueParams params) { return memory.keyValueStore(params); }

    @Override
    public WindowBytesStoreSupplier windowStore(final DslWindowParams params) { return disk.windowStore(params); }

    @Override
    public SessionBytesStoreSupplier sessionStore(final DslSessionParams params) { return disk.sessionStore(params); }
}
