import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/**
 * What Kafka Streams' stores return, for the generated calls of store_reads.py.
 *
 * Each record has some calls; the topology commits after each record. A line has a call and its result; "log:" lines are
 * the records that the calls left in the changelog, one for each key.
 *
 * Run: java -cp <kafka-streams and test-utils> StoreReads.java run <directory>
 */
public class StoreReads {
    static final Serde<String> STR = Serdes.String();
    static final int RECORDS = 120;
    static final long RETENTION = 200_000;
    static final String[] KEYS = {"", "a", "aa", "ab", "b", "ba", "c", "zz"};

    public static void main(final String[] args) throws IOException {
        final Path directory = Path.of(args[1]);
        Files.createDirectories(directory);
        for (final Map.Entry<String, StoreBuilder<?>> each : stores().entrySet())
            Files.writeString(directory.resolve(each.getKey() + ".txt"), run(each.getKey(), each.getValue()));
    }

    static Map<String, StoreBuilder<?>> stores() {
        final Duration kept = Duration.ofMillis(RETENTION);
        final Duration size = Duration.ofMillis(10_000);
        final Map<String, StoreBuilder<?>> s = new LinkedHashMap<>();
        s.put("key-value-disk", Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("s"), STR, STR));
        s.put("key-value-disk-cached", Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("s"), STR, STR).withCachingEnabled());
        s.put("key-value-memory", Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("s"), STR, STR));
        s.put("key-value-lru", Stores.keyValueStoreBuilder(Stores.lruMap("s", 4), STR, STR));
        s.put("key-value-lru-one", Stores.keyValueStoreBuilder(Stores.lruMap("s", 1), STR, STR));
        s.put("key-value-times", Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore("s"), STR, STR));
        s.put("key-value-times-lru", Stores.timestampedKeyValueStoreBuilder(Stores.lruMap("s", 3), STR, STR));
        s.put("window-disk", Stores.windowStoreBuilder(Stores.persistentWindowStore("s", kept, size, false), STR, STR));
        s.put("window-memory", Stores.windowStoreBuilder(Stores.inMemoryWindowStore("s", kept, size, false), STR, STR));
        s.put("window-disk-duplicates", Stores.windowStoreBuilder(Stores.persistentWindowStore("s", kept, size, true), STR, STR));
        s.put("window-memory-duplicates", Stores.windowStoreBuilder(Stores.inMemoryWindowStore("s", kept, size, true), STR, STR));
        // Their stores with a changelog do not pass on the backward reads; see Caller.
        s.put("session-disk", Stores.sessionStoreBuilder(Stores.persistentSessionStore("s", kept), STR, STR).withLoggingDisabled());
        s.put("session-memory", Stores.sessionStoreBuilder(Stores.inMemorySessionStore("s", kept), STR, STR).withLoggingDisabled());
        return s;
    }

    static String run(final String name, final StoreBuilder<?> store) throws IOException {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(store);
        builder.stream("in", Consumed.with(STR, STR)).process(Caller::new, "s").to("out", Produced.with(STR, STR));
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "none:1");
        config.put("state.dir", Files.createTempDirectory("oracle").toString());
        final StringBuilder text = new StringBuilder();
        final Calls calls = new Calls(name);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config)) {
            final TestInputTopic<String, String> in = driver.createInputTopic("in", STR.serializer(), STR.serializer());
            final TestOutputTopic<String, String> out = driver.createOutputTopic("out", STR.deserializer(), STR.deserializer());
            final TestOutputTopic<byte[], byte[]> log = driver.createOutputTopic(
                "app-s-changelog", Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer());
            for (int i = 0; i < RECORDS; i++) {
                in.pipeInput("k", calls.next(), Instant.ofEpochMilli(1000 + i));
                text.append(out.readValue());
                final Map<String, String> logged = new TreeMap<>();
                log.readRecordsToList().forEach(r -> logged.put(hex(r.key()), hex(r.value()) + " " + r.timestamp()));
                // Kafka Streams' store with timestamps does not log evictions.
                if (!name.equals("key-value-times-lru")) logged.forEach((k, v) -> text.append("log: ").append(k).append(' ').append(v).append('\n'));
            }
        }
        return text.toString();
    }

    static String hex(final byte[] bytes) { return bytes == null ? "null" : java.util.HexFormat.of().formatHex(bytes); }

    /** Generates calls, with the same arithmetic as store_reads.py. */
    static class Calls {
        private final String kind;
        private final boolean memory;
        private final boolean duplicates;
        private final boolean lru;
        private long state;
        private long now = 50_000;

        Calls(final String name) {
            kind = name.substring(0, name.indexOf('-'));
            memory = name.contains("memory");
            duplicates = name.contains("duplicates");
            lru = name.contains("lru");
            state = name.length() * 1000L + name.charAt(name.length() - 1);
        }

        int roll(final int sides) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            return (int) ((state >>> 33) % sides);
        }

        String key() { return KEYS[roll(KEYS.length)]; }
        String bound() { return roll(5) == 0 ? "~" : key(); }
        String value() { return roll(6) == 0 ? "~" : "v" + roll(100); }
        long time() { return Math.max(0, now - roll(30) * 10_000L); }

        // The store in memory fails for some ranges that are the wrong way round.
        static String ordered(final String one, final String other) {
            return one.equals("~") || other.equals("~") || one.compareTo(other) <= 0 ? one + ":" + other : other + ":" + one;
        }

        static String ordered(final long one, final long other) { return Math.min(one, other) + ":" + Math.max(one, other); }

        String next() {
            final List<String> calls = new ArrayList<>();
            final int count = 1 + roll(4);
            for (int i = 0; i < count; i++) calls.add(kind.equals("key") ? keyValue() : kind.equals("window") ? window() : session());
            return String.join(";", calls);
        }

        String keyValue() {
            final int call = roll(14);
            if (call < 6) return "put:" + key() + ":" + value();
            switch (call) {
                case 6: return "delete:" + key();
                case 7: return "put_if_absent:" + key() + ":w" + roll(100);
                case 8: return "get:" + key();
                case 9: return "range:" + bound() + ":" + bound();
                case 10: return "reverse_range:" + bound() + ":" + bound();
                case 11: return roll(2) == 0 ? "all" : "reverse_all";
                case 12: return "prefix_scan:" + KEYS[1 + roll(KEYS.length - 1)];
                // There, put_all() logs evictions before the puts of the evicted entries.
                default: return lru ? "get:" + key() : "put_all:" + key() + ":" + value() + ":" + key() + ":" + value();
            }
        }

        String window() {
            final int call = roll(16);
            if (call < 8) {
                now += roll(4) == 0 ? roll(4) * 10_000L : 0;
                return "put:" + key() + ":" + value() + ":" + time();
            }
            final String back = roll(2) == 0 ? "" : "backward_";
            switch (call) {
                case 8: return "fetch:" + key() + ":" + time();
                case 9: return back + "all";
                case 10: return back + "fetch_all:" + time() + ":" + time();
                case 11: case 12: return back + "fetch_range:" + (duplicates ? key() + ":" + key() : bound() + ":" + bound()) + ":" + time() + ":" + time();
                default: return back + "fetch:" + key() + ":" + time() + ":" + time();
            }
        }

        String session() {
            final int call = roll(18);
            if (call < 8) {
                now += roll(4) == 0 ? roll(4) * 10_000L : 0;
                final long end = time();
                return "put:" + key() + ":" + Math.max(0, end - roll(4) * 10_000L) + ":" + end + ":" + value();
            }
            final String back = roll(2) == 0 ? "" : "backward_";
            switch (call) {
                case 8: { final long end = time(); return "fetch_session:" + key() + ":" + Math.max(0, end - roll(3) * 10_000L) + ":" + end; }
                case 9: { final long end = time(); return "remove:" + key() + ":" + Math.max(0, end - roll(3) * 10_000L) + ":" + end; }
                case 10: case 11: return back + "fetch:" + key();
                case 12: return back + "fetch_range:" + ordered(bound(), bound());
                case 13: case 14: return back + "find_sessions:" + key() + ":" + time() + ":" + time();
                case 15: return memory ? "find_sessions_ending:" + ordered(time(), time()) : back + "fetch:" + key();
                default: return back + "find_sessions_range:" + bound() + ":" + bound() + ":" + time() + ":" + time();
            }
        }
    }

    /** Makes the calls of each record, and forwards their results. */
    static class Caller extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            StateStore store = context().getStateStore("s");
            // The wrapper that processors get does not pass on the backward reads of sessions.
            if (store instanceof SessionStore) store = ((WrappedStateStore<?, ?, ?>) store).wrapped();
            final StringBuilder text = new StringBuilder();
            for (final String call : record.value().split(";", -1)) {
                final String[] a = call.split(":", -1);
                text.append(call).append(" -> ").append(store instanceof WindowStore ? window((WindowStore<String, String>) store, a)
                    : store instanceof SessionStore ? session((SessionStore<String, String>) store, a)
                    : store instanceof TimestampedKeyValueStore ? times((TimestampedKeyValueStore<String, String>) store, a, record.timestamp())
                    : keyValue((KeyValueStore<String, String>) store, a)).append('\n');
            }
            context().forward(record.withValue(text.toString()));
        }
    }

    static String no(final String text) { return "~".equals(text) ? null : text; }
    static long at(final String text) { return Long.parseLong(text); }

    static String keyValue(final KeyValueStore<String, String> s, final String[] a) {
        switch (a[0]) {
            case "put": s.put(a[1], no(a[2])); return "";
            case "delete": return "" + s.delete(a[1]);
            case "put_if_absent": return "" + s.putIfAbsent(a[1], a[2]);
            case "put_all": s.putAll(List.of(KeyValue.pair(a[1], no(a[2])), KeyValue.pair(a[3], no(a[4])))); return "";
            case "get": return "" + s.get(a[1]);
            case "range": return all(s.range(no(a[1]), no(a[2])));
            case "reverse_range": return all(s.reverseRange(no(a[1]), no(a[2])));
            case "all": return all(s.all());
            case "reverse_all": return all(s.reverseAll());
            default: return all(s.prefixScan(a[1], new StringSerializer()));
        }
    }

    static String times(final TimestampedKeyValueStore<String, String> s, final String[] a, final long now) {
        switch (a[0]) {
            case "put": s.put(a[1], ValueAndTimestamp.make(no(a[2]), now)); return "";
            case "delete": return "" + s.delete(a[1]);
            case "put_if_absent": return "" + s.putIfAbsent(a[1], ValueAndTimestamp.make(a[2], now));
            case "put_all": s.putAll(List.of(KeyValue.pair(a[1], ValueAndTimestamp.make(no(a[2]), now)), KeyValue.pair(a[3], ValueAndTimestamp.make(no(a[4]), now)))); return "";
            case "get": return "" + s.get(a[1]);
            case "range": return all(s.range(no(a[1]), no(a[2])));
            case "reverse_range": return all(s.reverseRange(no(a[1]), no(a[2])));
            case "all": return all(s.all());
            case "reverse_all": return all(s.reverseAll());
            default: return all(s.prefixScan(a[1], new StringSerializer()));
        }
    }

    static String window(final WindowStore<String, String> s, final String[] a) {
        switch (a[0]) {
            case "put": s.put(a[1], no(a[2]), at(a[3])); return "";
            case "fetch": return a.length == 3 ? "" + s.fetch(a[1], at(a[2])) : times(s.fetch(a[1], at(a[2]), at(a[3])));
            case "backward_fetch": return times(s.backwardFetch(a[1], at(a[2]), at(a[3])));
            case "fetch_range": return all(s.fetch(no(a[1]), no(a[2]), at(a[3]), at(a[4])));
            case "backward_fetch_range": return all(s.backwardFetch(no(a[1]), no(a[2]), at(a[3]), at(a[4])));
            case "fetch_all": return all(s.fetchAll(at(a[1]), at(a[2])));
            case "backward_fetch_all": return all(s.backwardFetchAll(at(a[1]), at(a[2])));
            case "all": return all(s.all());
            default: return all(s.backwardAll());
        }
    }

    static Windowed<String> span(final String[] a) { return new Windowed<>(a[1], new SessionWindow(at(a[2]), at(a[3]))); }

    static String session(final SessionStore<String, String> s, final String[] a) {
        switch (a[0]) {
            case "put": s.put(span(a), no(a[4])); return "";
            case "remove": s.remove(span(a)); return "";
            case "fetch_session": return "" + s.fetchSession(a[1], at(a[2]), at(a[3]));
            case "fetch": return all(s.fetch(a[1]));
            case "backward_fetch": return all(s.backwardFetch(a[1]));
            case "fetch_range": return all(s.fetch(no(a[1]), no(a[2])));
            case "backward_fetch_range": return all(s.backwardFetch(no(a[1]), no(a[2])));
            case "find_sessions": return all(s.findSessions(a[1], at(a[2]), at(a[3])));
            case "backward_find_sessions": return all(s.backwardFindSessions(a[1], at(a[2]), at(a[3])));
            case "find_sessions_range": return all(s.findSessions(no(a[1]), no(a[2]), at(a[3]), at(a[4])));
            case "find_sessions_ending": return all(s.findSessions(at(a[1]), at(a[2])));
            default: return all(s.backwardFindSessions(no(a[1]), no(a[2]), at(a[3]), at(a[4])));
        }
    }

    static <K, V> String all(final KeyValueIterator<K, V> found) {
        final List<String> shown = new ArrayList<>();
        try (found) {
            found.forEachRemaining(each -> shown.add(each.key instanceof Windowed<?> w
                ? w.key() + "@" + w.window().start() + "-" + w.window().end() + "=" + each.value : each.key + "=" + each.value));
        }
        return String.join(" ", shown);
    }

    static String times(final WindowStoreIterator<String> found) {
        final List<String> shown = new ArrayList<>();
        try (found) {
            found.forEachRemaining(each -> shown.add(each.key + "=" + each.value));
        }
        return String.join(" ", shown);
    }
}
