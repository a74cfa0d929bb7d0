// The Kafka Streams side of the applications that take turns: the topology of tests/turns/topology.py, in the same order.
// `describe` prints its description. `run application=… bootstrap=… prefix=… state=…` runs it until its standard input ends.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

public final class Turns {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration GRACE = Duration.ofSeconds(20);
    private static final Duration RETENTION = Duration.ofMinutes(2);
    private static final Duration FINALS_RETENTION = Duration.ofMinutes(20);
    private static final Duration HISTORY = Duration.ofMinutes(2);

    private Turns() {}

    public static void main(final String[] args) throws Exception {
        final Map<String, String> options = new HashMap<>();
        for (int i = 1; i < args.length; i++) {
            final int equals = args[i].indexOf('=');
            options.put(args[i].substring(0, equals), args[i].substring(equals + 1));
        }
        if (args[0].equals("describe")) {
            System.out.print(topology("").describe());
            return;
        }
        final Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("application"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state"));
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 20);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // Small polls, so that an application may be stopped in the middle of its input.
        properties.put(StreamsConfig.mainConsumerPrefix("max.poll.records"), 20);
        // Without it the next application would wait for this one's session to time out.
        properties.put("internal.leave.group.on.close", true);
        // As in the test driver: results that depend on the wall clock cannot be compared.
        properties.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        properties.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        final KafkaStreams streams = new KafkaStreams(topology(options.get("prefix")), properties);
        // A thread of 4.1.0 may fail while internal topics are new: "does not know the partition".
        final AtomicInteger failures = new AtomicInteger();
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            if (failures.incrementAndGet() > 20) {
                Runtime.getRuntime().halt(3);
            }
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // The test closes the input to end the application.
        }
        if (!streams.close(Duration.ofSeconds(60))) {
            System.exit(4);
        }
    }

    private static Topology topology(final String prefix) {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> left = builder.stream("left", Consumed.with(TEXT, TEXT));
        final KStream<String, String> right = builder.stream("right", Consumed.with(TEXT, TEXT));
        final KTable<String, String> table = builder.table("table", Consumed.with(TEXT, TEXT), Materialized.as("table"));
        final KTable<String, String> other = builder.table("other", Consumed.with(TEXT, TEXT), Materialized.as("other"));
        final Turns.Out out = new Turns.Out(prefix);

        final KGroupedStream<String, String> grouped = left.groupByKey(Grouped.with(TEXT, TEXT));
        out.longs("count", grouped.count(Named.as("count"), Materialized.as("count")));
        out.texts("reduce", grouped.reduce(Turns::joined, Named.as("reduce"), Materialized.as("reduce")));
        out.texts("aggregate", grouped.aggregate(() -> "", Turns::added, Named.as("aggregate"), texts("aggregate")));
        out.texts("in-memory", grouped.aggregate(
            () -> "", Turns::added, Named.as("in-memory"),
            Materialized.<String, String>as(Stores.inMemoryKeyValueStore("in-memory")).withKeySerde(TEXT).withValueSerde(TEXT)));

        final TimeWindows tumbling = TimeWindows.ofSizeAndGrace(WINDOW, GRACE);
        final KTable<Windowed<String>, Long> counts = grouped.windowedBy(tumbling)
            .count(Named.as("tumbling"), Materialized.<String, Long, WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("tumbling").withRetention(RETENTION));
        out.windowed("tumbling", counts);
        out.windowed("suppress-final", counts.suppress(Suppressed.<Windowed>untilWindowCloses(BufferConfig.unbounded()).withName("suppress-final")));
        out.windowed("suppress-time", counts.suppress(Suppressed.<Windowed<String>>untilTimeLimit(Duration.ofSeconds(5), BufferConfig.unbounded()).withName("suppress-time")));
        out.windowed("hopping", grouped.windowedBy(tumbling.advanceBy(Duration.ofSeconds(5))).count(Named.as("hopping"), Materialized.as("hopping")));
        out.windowed("sliding", grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE)).count(Named.as("sliding"), Materialized.as("sliding")));
        out.sessions("session", grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(4), GRACE)).count(Named.as("session"), Materialized.as("session")));

        final JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(2));
        out.stream("stream-inner", left.join(right, Turns::pair, windows, joined("stream-inner")));
        out.stream("stream-left", left.leftJoin(right, Turns::pair, windows.before(Duration.ofSeconds(3)), joined("stream-left")));
        out.stream("stream-outer", left.outerJoin(right, Turns::pair, windows, joined("stream-outer")));
        out.stream("stream-self", left.join(left, Turns::pair, windows, joined("stream-self")));

        out.stream("stream-table", left.join(table, Turns::pair, Joined.<String, String, String>as("stream-table")));
        out.stream("stream-table-left", left.leftJoin(table, Turns::pair, Joined.<String, String, String>as("stream-table-left")));
        final GlobalKTable<String, String> global = builder.globalTable("global", Consumed.with(TEXT, TEXT), Materialized.as("global"));
        out.stream("global", left.leftJoin(global, (key, value) -> value.substring(0, 1), Turns::pair, Named.as("global-join")));

        out.texts("table-inner", table.join(other, Turns::pair, Named.as("table-inner"), Materialized.as("table-inner")));
        out.texts("table-left", table.leftJoin(other, Turns::pair, Named.as("table-left"), Materialized.as("table-left")));
        out.texts("table-outer", table.outerJoin(other, Turns::pair, Named.as("table-outer"), Materialized.as("table-outer")));
        out.texts("filter", table.filter((key, value) -> value.compareTo("5") < 0, Named.as("table-filter"), texts("filter")));
        out.texts("map-values", table.mapValues(value -> value + "!", Named.as("table-map"), texts("map-values")));
        out.texts("to-table", right.toTable(Named.as("table-of-right"), texts("to-table")));
        out.texts("regrouped", table
            .groupBy((key, value) -> KeyValue.pair(value.substring(0, 1), value), Grouped.with("regrouped", TEXT, TEXT))
            .aggregate(() -> "0", Turns::summed, Turns::less, Named.as("regrouped-sum"), texts("regrouped")));
        out.texts("rekeyed", left
            .groupBy((key, value) -> value.substring(0, 1), Grouped.with("rekeyed", TEXT, TEXT))
            .aggregate(() -> "0", Turns::summed, Named.as("rekeyed-sum"), texts("rekeyed")));

        stateProcessors(builder, left, out);

        out.texts("cogroup", grouped.cogroup(Turns::added)
            .cogroup(right.groupByKey(Grouped.with(TEXT, TEXT)), (key, value, sum) -> added(key, value.toUpperCase(), sum))
            .aggregate(() -> "", Named.as("cogroup"), texts("cogroup")));
        out.windowedTexts("cogroup-windowed", grouped.cogroup(Turns::added)
            .windowedBy(tumbling)
            .aggregate(() -> "", Named.as("cogroup-windowed"), Materialized.<String, String, WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("cogroup-windowed").withKeySerde(TEXT).withValueSerde(TEXT)));
        out.windowed("final-tumbling", grouped.windowedBy(tumbling).emitStrategy(EmitStrategy.onWindowClose())
            .count(Named.as("final-tumbling"), Materialized.<String, Long, WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("final-tumbling").withRetention(FINALS_RETENTION)));
        out.windowed("final-sliding", grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE)).emitStrategy(EmitStrategy.onWindowClose())
            .count(Named.as("final-sliding"), Materialized.<String, Long, WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("final-sliding").withRetention(FINALS_RETENTION)));
        out.sessions("final-session", grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(4), GRACE)).emitStrategy(EmitStrategy.onWindowClose())
            .count(Named.as("final-session"), Materialized.<String, Long, SessionStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("final-session").withRetention(FINALS_RETENTION)));

        out.texts("foreign-inner", table.join(
            other, (String value) -> "k" + value.charAt(value.length() - 1), Turns::pair, TableJoined.as("foreign-inner"), texts("foreign-inner")));
        out.texts("foreign-left", table.leftJoin(
            other, (String value) -> "k" + value.charAt(value.length() - 1), Turns::pair, TableJoined.as("foreign-left"), texts("foreign-left")));

        final KTable<String, String> versioned = builder.table(
            "versions", Consumed.with(TEXT, TEXT),
            Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore("versions", HISTORY)).withKeySerde(TEXT).withValueSerde(TEXT));
        out.stream("stream-versioned", left.join(versioned, Turns::pair, Joined.<String, String, String>as("stream-versioned")));

        return builder.build();
    }

    private static void stateProcessors(final StreamsBuilder builder, final KStream<String, String> left, final Out out) {
        final StoreBuilder<?>[] stores = {
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("kv"), TEXT, LONG),
            Stores.timestampedKeyValueStoreBuilder(Stores.inMemoryKeyValueStore("kv-timed"), TEXT, LONG),
            Stores.windowStoreBuilder(Stores.persistentWindowStore("windows", RETENTION, WINDOW, false), TEXT, LONG),
            Stores.windowStoreBuilder(Stores.persistentWindowStore("duplicates", RETENTION, WINDOW, true), TEXT, TEXT),
            Stores.sessionStoreBuilder(Stores.persistentSessionStore("sessions", RETENTION), TEXT, LONG),
            Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("versioned-kv", HISTORY), TEXT, TEXT)
        };
        for (final StoreBuilder<?> store : stores) {
            builder.addStateStore(store);
        }
        out.stream("stores", left.processValues(
            AllStores::new, Named.as("all-stores"), "kv", "kv-timed", "windows", "duplicates", "sessions", "versioned-kv"));
    }

    /** Reads and writes a store of each kind, and forwards what it read. */
    private static final class AllStores implements FixedKeyProcessor<String, String, String> {
        private FixedKeyProcessorContext<String, String> context;

        @Override
        public void init(final FixedKeyProcessorContext<String, String> given) {
            context = given;
        }

        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            final String key = record.key();
            final long time = record.timestamp();
            final List<String> seen = new ArrayList<>();
            final KeyValueStore<String, Long> kv = context.getStateStore("kv");
            final Long old = kv.get(key);
            kv.put(key, old == null ? 1 : old + 1);
            seen.add(String.valueOf(old == null ? 0 : old));
            final KeyValueStore<String, ValueAndTimestamp<Long>> timed = context.getStateStore("kv-timed");
            final ValueAndTimestamp<Long> before = timed.get(key);
            timed.put(key, ValueAndTimestamp.make(before == null ? 1L : before.value() + 1, time));
            seen.add(before == null ? "0@0" : before.value() + "@" + before.timestamp());
            final WindowStore<String, Long> windows = context.getStateStore("windows");
            final long start = time - time % WINDOW.toMillis();
            final Long inWindow = windows.fetch(key, start);
            windows.put(key, inWindow == null ? 1 : inWindow + 1, start);
            seen.add(String.valueOf(inWindow == null ? 0 : inWindow));
            final WindowStore<String, String> duplicates = context.getStateStore("duplicates");
            duplicates.put(key, record.value(), start);
            long kept = 0;
            try (WindowStoreIterator<String> all = duplicates.fetch(key, start, start)) {
                while (all.hasNext()) {
                    kept++;
                    all.next();
                }
            }
            seen.add(String.valueOf(kept));
            final SessionStore<String, Long> sessions = context.getStateStore("sessions");
            long merged = 1;
            long from = time;
            final List<Windowed<String>> found = new ArrayList<>();
            try (KeyValueIterator<Windowed<String>, Long> near = sessions.findSessions(key, time - 3000, time + 3000)) {
                while (near.hasNext()) {
                    final KeyValue<Windowed<String>, Long> next = near.next();
                    merged += next.value;
                    from = Math.min(from, next.key.window().start());
                    found.add(next.key);
                }
            }
            for (final Windowed<String> each : found) {
                sessions.remove(each);
            }
            sessions.put(new Windowed<>(key, new org.apache.kafka.streams.kstream.internals.SessionWindow(from, time)), merged);
            seen.add(String.valueOf(merged));
            final VersionedKeyValueStore<String, String> versions = context.getStateStore("versioned-kv");
            final VersionedRecord<String> earlier = versions.get(key, time - 5000);
            versions.put(key, record.value(), time);
            seen.add(earlier == null ? "-" : earlier.value() + "@" + earlier.timestamp());
            context.forward(record.withValue(String.join(" ", seen)));
        }
    }

    private static Materialized<String, String, KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>> texts(final String name) {
        return Materialized.<String, String, KeyValueStore<org.apache.kafka.common.utils.Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private static StreamJoined<String, String, String> joined(final String name) {
        return StreamJoined.with(TEXT, TEXT, TEXT).withName(name).withStoreName(name);
    }

    private static String pair(final String one, final String two) {
        return one + "/" + (two == null ? "-" : two);
    }

    private static String joined(final String one, final String two) {
        return added(null, two, one);
    }

    /** A sum of texts that does not grow: its last characters. */
    private static String added(final String key, final String value, final String sum) {
        final String all = sum + value;
        return all.substring(Math.max(0, all.length() - 12));
    }

    /** A sum of the last digits of the values, which is the same in any order. */
    private static String summed(final String key, final String value, final String sum) {
        return String.valueOf(Integer.parseInt(sum) + digit(value));
    }

    private static String less(final String key, final String value, final String sum) {
        return String.valueOf(Integer.parseInt(sum) - digit(value));
    }

    private static int digit(final String value) {
        return value.charAt(value.length() - 1) - '0';
    }

    /** Writes results to topics. */
    private static final class Out {
        private final String prefix;

        Out(final String prefix) {
            this.prefix = prefix;
        }

        void stream(final String name, final KStream<String, String> results) {
            results.to(prefix + name, Produced.with(TEXT, TEXT).withName("to-" + name));
        }

        void texts(final String name, final KTable<String, String> results) {
            stream(name, results.toStream(Named.as("changes-of-" + name)));
        }

        void longs(final String name, final KTable<String, Long> results) {
            results.toStream(Named.as("changes-of-" + name)).to(prefix + name, Produced.with(TEXT, LONG).withName("to-" + name));
        }

        void windowed(final String name, final KTable<Windowed<String>, Long> results) {
            results.toStream(Named.as("changes-of-" + name))
                .to(prefix + name, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()), LONG).withName("to-" + name));
        }

        void windowedTexts(final String name, final KTable<Windowed<String>, String> results) {
            results.toStream(Named.as("changes-of-" + name))
                .to(prefix + name, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()), TEXT).withName("to-" + name));
        }

        void sessions(final String name, final KTable<Windowed<String>, Long> results) {
            results.toStream(Named.as("changes-of-" + name))
                .to(prefix + name, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), LONG).withName("to-" + name));
        }
    }
}
