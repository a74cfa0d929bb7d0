import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What Kafka Streams does with generated records, for the topologies of behaviours.py.
 *
 * Values are a letter and a digit, such as "c7". One line of `cases` makes two golden files, without and with caching.
 *
 * Run: java -cp <kafka-streams and test-utils> Behaviours.java run <directory>
 */
public class Behaviours {
    static final Serde<String> STR = Serdes.String();
    static final int RECORDS = 150;

    public static void main(final String[] args) throws IOException {
        final Path directory = Path.of(args[1]);
        Files.createDirectories(directory);
        for (final Map.Entry<String, BiConsumer<StreamsBuilder, Boolean>> each : cases().entrySet()) {
            for (final boolean caching : new boolean[] {false, true}) {
                final String name = each.getKey() + (caching ? "-cached" : "");
                Files.writeString(directory.resolve(name + ".txt"), run(name, each.getValue(), caching));
            }
        }
    }

    static String run(final String name, final BiConsumer<StreamsBuilder, Boolean> write, final boolean caching)
            throws IOException {
        final StreamsBuilder builder = new StreamsBuilder();
        write.accept(builder, caching);
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "none:1");
        config.put("state.dir", Files.createTempDirectory("oracle").toString());
        final StringBuilder text = new StringBuilder();
        final Dice dice = new Dice(name.length() * 1000L + name.charAt(0));
        long now = 1000;
        final Topology topology = builder.build();
        final String description = topology.describe().toString();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config)) {
            final Map<String, TestInputTopic<String, String>> inputs = new TreeMap<>();
            for (final String topic : List.of("in", "rows"))
                inputs.put(topic, driver.createInputTopic(topic, STR.serializer(), STR.serializer()));
            final TestOutputTopic<String, String> out = driver.createOutputTopic("out", STR.deserializer(), STR.deserializer());
            final TestOutputTopic<byte[], byte[]> sessions = driver.createOutputTopic(
                "app-sessions-changelog", Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer());
            final TestOutputTopic<String, String> log = driver.createOutputTopic("app-s-changelog", STR.deserializer(), STR.deserializer());
            final Map<String, TestOutputTopic<byte[], byte[]>> kept = new TreeMap<>();
            for (final String part : List.of("outer-this", "outer-other", "outer-shared"))
                kept.put(part, driver.createOutputTopic("app-kept-" + part + "-join-store-changelog",
                    Serdes.ByteArray().deserializer(), Serdes.ByteArray().deserializer()));
            for (int i = 0; i < RECORDS; i++) {
                final String topic = dice.roll(3) == 0 ? "rows" : "in";
                final int k = dice.roll(6);
                final int v = dice.roll(7);
                final String key = k == 0 ? null : "k" + k;
                final String value = v == 0 ? null : "" + (char) ('a' + dice.roll(4)) + dice.roll(10);
                now += dice.roll(40);
                final long timestamp = Math.max(0, now - dice.roll(120));
                if (!description.contains("(topics: [" + topic + "])")) continue;
                inputs.get(topic).pipeInput(new TestRecord<>(key, value, java.time.Instant.ofEpochMilli(timestamp)));
                text.append(topic).append(' ').append(key).append(' ').append(value).append(' ').append(timestamp).append('\n');
                for (final TestRecord<String, String> r : out.readRecordsToList())
                    text.append("  ").append(r.key()).append(' ').append(r.value()).append(' ').append(r.timestamp()).append('\n');
                if (!caching && description.contains("(stores: [kept-"))
                    for (final Map.Entry<String, TestOutputTopic<byte[], byte[]>> each : kept.entrySet())
                        for (final TestRecord<byte[], byte[]> r : each.getValue().readRecordsToList())
                            text.append("  ").append(each.getKey()).append(": ").append(hex(r.key())).append(' ').append(hex(r.value())).append(' ').append(r.timestamp()).append('\n');
                if (caching && description.contains("(stores: [sessions])"))
                    for (final TestRecord<byte[], byte[]> r : sessions.readRecordsToList())
                        text.append("  sessions: ").append(hex(r.key())).append(' ').append(hex(r.value())).append(' ').append(r.timestamp()).append('\n');
                if (caching && description.contains("(stores: [s])"))
                    for (final TestRecord<String, String> r : log.readRecordsToList())
                        text.append("  s: ").append(r.key()).append(' ').append(r.value()).append(' ').append(r.timestamp()).append('\n');
            }
        }
        return text.toString();
    }

    static String hex(final byte[] bytes) { return bytes == null ? null : java.util.HexFormat.of().formatHex(bytes); }

    static class Dice {
        private long state;
        Dice(final long seed) { state = seed; }
        int roll(final int sides) {
            state = (state * 6364136223846793005L + 1442695040888963407L);
            return (int) ((state >>> 33) % sides);
        }
    }

    // What the user functions do; the same in behaviours.py.
    static String letter(final String v) { return v == null ? null : v.substring(0, 1); }
    static int digit(final String v) { return Integer.parseInt(v.substring(1)); }
    static boolean small(final String v) { return v != null && digit(v) < 5; }
    static String plus(final String a, final String b) { return a.length() > 30 ? b : a + "+" + b; }
    static String less(final String a, final String b) { return a.length() > 30 ? b : a + "-" + b; }

    static KStream<String, String> in(final StreamsBuilder b) { return b.stream("in", Consumed.with(STR, STR)); }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kv(final String name, final boolean caching) {
        final Materialized<String, String, KeyValueStore<Bytes, byte[]>> m =
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(STR).withValueSerde(STR);
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> longs(final String name, final boolean caching) {
        final Materialized<String, Long, KeyValueStore<Bytes, byte[]>> m =
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(STR).withValueSerde(Serdes.Long());
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> win(final Serde<V> v, final boolean caching) {
        final Materialized<String, V, WindowStore<Bytes, byte[]>> m =
            Materialized.<String, V, WindowStore<Bytes, byte[]>>as("windows").withKeySerde(STR).withValueSerde(v);
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> sessions(final Serde<V> v, final boolean caching) {
        final Materialized<String, V, SessionStore<Bytes, byte[]>> m =
            Materialized.<String, V, SessionStore<Bytes, byte[]>>as("sessions").withKeySerde(STR).withValueSerde(v);
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    // With a cache, sessions that have expired in the store are found for as long as the cache has them: none expires.
    static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> longer(final Materialized<String, V, SessionStore<Bytes, byte[]>> m, final boolean caching) {
        return caching ? m.withRetention(Duration.ofMillis(100_000)) : m;
    }

    static SessionWindowedKStream<String, String> gap(final KStream<String, String> s, final int gap, final int grace) {
        return s.groupByKey(g()).windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(gap), Duration.ofMillis(grace)));
    }

    static void sessionCases(final Map<String, BiConsumer<StreamsBuilder, Boolean>> c) {
        c.put("session_count", (b, h) -> outWindowed(gap(in(b), 20, 0).count(sessions(Serdes.Long(), h))));
        c.put("session_count_grace", (b, h) -> outWindowed(gap(in(b), 25, 60).count(sessions(Serdes.Long(), h).withRetention(Duration.ofMillis(100)))));
        c.put("session_count_in_memory", (b, h) -> outWindowed(gap(in(b), 25, 20)
            .count(sessions(Serdes.Long(), h).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY))));
        c.put("session_reduce", (b, h) -> outWindowed(gap(in(b), 20, 50).reduce(Behaviours::plusNull, sessions(STR, h))));
        c.put("session_aggregate", (b, h) -> outWindowed(gap(in(b), 30, 30)
            .aggregate(() -> "z0", (k, v, a) -> v == null ? null : plus(a, v), (k, x, y) -> less(x, y), sessions(STR, h))));
        c.put("session_put_again", (b, h) -> outWindowed(gap(in(b).processValues(Thrice::new), 15, 200).count(sessions(Serdes.Long(), h))));
        c.put("session_filter_group", (b, h) -> out(gap(in(b), 30, 30).reduce(Behaviours::plusNull, sessions(STR, h))
            .filter((k, v) -> v.length() > 3).groupBy((k, v) -> KeyValue.pair(k.key(), v), g())
            .reduce(Behaviours::plus, Behaviours::less, kv("r", h)).toStream()));
        c.put("session_suppress", (b, h) -> outWindowed(gap(in(b), 20, 10).count(sessions(Serdes.Long(), h))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        c.put("session_origin", (b, h) -> outWindowed(gap(in(b), 30, 10).count(longer(sessions(Serdes.Long(), h), h)).mapValues(v -> "" + v)
            .toStream().processValues(Origin<Windowed<String>, String>::new).toTable(Materialized.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), STR))));
        c.put("session_not_logged", (b, h) -> outWindowed(gap(in(b), 20, 0).count(sessions(Serdes.Long(), h).withLoggingDisabled())));
    }

    static String plusNull(final String a, final String b) { return plus(a, b == null ? "n0" : b); }

    static KTable<String, String> rows(final StreamsBuilder b, final boolean caching) {
        return b.table("rows", Consumed.with(STR, STR), kv("rows-store", caching));
    }

    static void out(final KStream<String, ?> s) {
        s.mapValues(v -> v == null ? null : v.toString()).to("out", Produced.with(STR, STR));
    }

    static void outWindowed(final KTable<Windowed<String>, ?> t) {
        out(t.toStream().selectKey((k, v) -> k.key() + "@" + k.window().start() + "-" + k.window().end()));
    }

    static TimeWindows size(final int size, final int advance, final int grace) {
        return TimeWindows.ofSizeAndGrace(Duration.ofMillis(size), Duration.ofMillis(grace)).advanceBy(Duration.ofMillis(advance));
    }

    static KStream<String, String> other(final StreamsBuilder b) { return b.stream("rows", Consumed.with(STR, STR)); }

    static JoinWindows apart(final int before, final int after, final int grace) {
        return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(Math.max(Math.abs(before), Math.abs(after))), Duration.ofMillis(grace))
            .before(Duration.ofMillis(before)).after(Duration.ofMillis(after));
    }

    static StreamJoined<String, String, String> sides() { return StreamJoined.with(STR, STR, STR); }

    /** Times in steps of 200 ms, so that many are equal. */
    static class Coarse extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            context().forward(record.withTimestamp(record.timestamp() / 200 * 200));
        }
    }

    static KStream<String, String> coarse(final KStream<String, String> s) { return s.processValues(Coarse::new); }

    static Grouped<String, String> g() { return Grouped.with(STR, STR); }

    static KGroupedTable<String, String> regroup(final KTable<String, String> t) {
        return t.groupBy((k, v) -> KeyValue.pair(letter(v), v), g());
    }

    /** Says where the record at hand came from. */
    static class Origin<K, V> extends ContextualFixedKeyProcessor<K, V, String> {
        @Override
        public void process(final FixedKeyRecord<K, V> record) {
            final String from = context().recordMetadata().map(m -> m.topic() + m.partition() + "/" + m.offset()).orElse("nowhere");
            context().forward(record.withValue(record.value() + " from " + from));
        }
    }

    /** Forwards a record, then an earlier one, then the record again. */
    static class Thrice extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            context().forward(record);
            context().forward(record.withTimestamp(Math.max(0, record.timestamp() - 60)));
            context().forward(record);
        }
    }

    /** Writes into store "s" from records, from records with another timestamp, and from a punctuator. */
    static class Writer extends ContextualProcessor<String, String, String, String> {
        private KeyValueStore<String, String> store;
        @Override
        public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            store = context.getStateStore("s");
            context.schedule(Duration.ofMillis(100), PunctuationType.STREAM_TIME, now -> {
                store.put("p", "at " + now);
                context.forward(new Record<>("p", "tick", now + 3));
            });
        }
        @Override
        public void process(final Record<String, String> record) {
            final String key = record.key() == null ? "n" : record.key();
            store.put("first", key);
            store.put(key, record.value());
            context().forward(record.withKey(key).withTimestamp(record.timestamp() / 2));
            store.put("first", key + "!");
        }
    }

    /** Writes what a Writer forwards. */
    static class Second extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(final Record<String, String> record) {
            context().<KeyValueStore<String, String>>getStateStore("s").put(record.key() + "2", record.value());
            context().forward(record);
        }
    }

    static TimeWindowedKStream<String, String> bySliding(final StreamsBuilder b, final int difference, final int grace) {
        return in(b).groupByKey(g()).windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(difference), Duration.ofMillis(grace)));
    }

    /** Those of window_behaviours.py. */
    static void windowCases(final Map<String, BiConsumer<StreamsBuilder, Boolean>> c) {
        c.put("sliding_count", (b, h) -> outWindowed(bySliding(b, 60, 50).count(win(Serdes.Long(), h))));
        c.put("sliding_count_without_grace", (b, h) -> outWindowed(in(b).groupByKey(g())
            .windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(30))).count(win(Serdes.Long(), h))));
        c.put("sliding_count_early", (b, h) -> outWindowed(bySliding(b, 2000, 90).count(win(Serdes.Long(), h))));
        c.put("sliding_reduce", (b, h) -> outWindowed(bySliding(b, 100, 200).reduce(Behaviours::plus, win(STR, h))));
        c.put("sliding_reduce_early", (b, h) -> outWindowed(bySliding(b, 1200, 40).reduce(Behaviours::plus, win(STR, h))));
        c.put("sliding_aggregate", (b, h) -> outWindowed(bySliding(b, 80, 60)
            .aggregate(() -> "z0", (k, v, a) -> v.startsWith("a") ? null : plus(a, k + v), win(STR, h))));
        c.put("sliding_aggregate_in_memory", (b, h) -> outWindowed(bySliding(b, 90, 30)
            .aggregate(() -> "z0", (k, v, a) -> plus(a, v), win(STR, h).withStoreType(Materialized.StoreType.IN_MEMORY))));
        c.put("sliding_group_by_reduce", (b, h) -> outWindowed(in(b).groupBy((k, v) -> letter(v), g())
            .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(70), Duration.ofMillis(70))).reduce(Behaviours::plus, win(STR, h))));
        c.put("sliding_regrouped", (b, h) -> out(bySliding(b, 50, 100).reduce(Behaviours::plus, win(STR, true))
            .groupBy((k, v) -> KeyValue.pair(k.key(), v), g()).count(longs("c", h)).toStream()));
        c.put("unlimited_count", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(UnlimitedWindows.of()).count(win(Serdes.Long(), h))));
        c.put("unlimited_reduce_from_start", (b, h) -> outWindowed(in(b).filter((k, v) -> v != null).groupByKey(g())
            .windowedBy(UnlimitedWindows.of().startOn(java.time.Instant.ofEpochMilli(2000))).reduce(Behaviours::plus, win(STR, h))));
    }

    static Map<String, BiConsumer<StreamsBuilder, Boolean>> cases() {
        final Map<String, BiConsumer<StreamsBuilder, Boolean>> c = new LinkedHashMap<>();
        c.put("stateless", (b, h) -> out(in(b).filter((k, v) -> small(v)).filterNot((k, v) -> v.endsWith("3"))
            .map((k, v) -> KeyValue.pair(letter(v), v + k)).flatMapValues(v -> List.of(v, v + "!"))
            .flatMap((k, v) -> v.endsWith("!") ? List.of(KeyValue.pair(k, v)) : List.of(KeyValue.pair(v, k), KeyValue.pair(k, v)))
            .selectKey((k, v) -> k + v)));
        c.put("split", (b, h) -> {
            final Map<String, KStream<String, String>> s = in(b).split(Named.as("s-")).branch((k, v) -> small(v), Branched.as("low"))
                .branch((k, v) -> v != null && v.startsWith("a"), Branched.as("a")).defaultBranch(Branched.as("rest"));
            out(s.get("s-low").mapValues(v -> "low " + v).merge(s.get("s-a").mapValues(v -> "a " + v)).merge(s.get("s-rest")));
        });
        c.put("count", (b, h) -> out(in(b).groupByKey(g()).count(longs("c", h)).toStream()));
        c.put("reduce", (b, h) -> out(in(b).groupByKey(g()).reduce(Behaviours::plus, kv("r", h)).toStream()));
        c.put("aggregate", (b, h) -> out(in(b).groupByKey(g())
            .aggregate(() -> "z0", (k, v, a) -> v.equals("a1") ? null : plus(a, k + v), kv("a", h)).toStream()));
        c.put("group_by_count", (b, h) -> out(in(b).groupBy((k, v) -> letter(v), g()).count(longs("c", h)).toStream()));
        c.put("window_tumbling_count", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(size(60, 60, 20)).count(win(Serdes.Long(), h))));
        c.put("window_tumbling_aggregate", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(size(50, 50, 0))
            .aggregate(() -> "z0", (k, v, a) -> v == null ? null : plus(a, v), win(STR, h))));
        c.put("window_hopping_count", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(size(90, 40, 30)).count(win(Serdes.Long(), h))));
        c.put("window_hopping_reduce", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(size(60, 25, 10))
            .reduce((x, y) -> plus(x, y == null ? "n0" : y), win(STR, h))));
        sessionCases(c);
        c.put("table", (b, h) -> out(rows(b, h).toStream()));
        c.put("table_passing_filter", (b, h) -> out(b.table("rows", Consumed.with(STR, STR)).filter((k, v) -> small(v)).toStream()));
        c.put("table_filter", (b, h) -> out(rows(b, h).filter((k, v) -> small(v)).mapValues(v -> v + "?").toStream()));
        c.put("table_filter_not_stored", (b, h) -> out(rows(b, h).filterNot((k, v) -> small(v), kv("kept", h)).toStream()));
        c.put("table_passing_filter_stored", (b, h) -> out(b.table("rows", Consumed.with(STR, STR))
            .filter((k, v) -> small(v), kv("kept", h)).mapValues(v -> v + "?", kv("mapped", h)).toStream()));
        c.put("to_table", (b, h) -> out(in(b).toTable(kv("t", h)).filter((k, v) -> small(v)).toStream()));
        c.put("table_group_count", (b, h) -> out(regroup(rows(b, h)).count(longs("c", h)).toStream()));
        c.put("table_group_reduce", (b, h) -> out(regroup(rows(b, h)).reduce(Behaviours::plus, Behaviours::less, kv("r", h)).toStream()));
        c.put("table_group_aggregate", (b, h) -> out(regroup(rows(b, h))
            .aggregate(() -> "z0", (k, v, a) -> plus(a, v), (k, v, a) -> v.equals("b2") ? null : less(a, v), kv("a", h)).toStream()));
        c.put("table_filter_group_reduce", (b, h) -> out(regroup(b.table("rows", Consumed.with(STR, STR))
            .filter((k, v) -> small(v)).mapValues(v -> v + "m")).reduce(Behaviours::plus, Behaviours::less, kv("r", h)).toStream()));
        c.put("table_stored_filter_group", (b, h) -> out(regroup(rows(b, h).filter((k, v) -> small(v), kv("kept", h)))
            .aggregate(() -> "z0", (k, v, a) -> plus(a, v), (k, v, a) -> less(a, v), kv("a", h)).filter((k, v) -> v.length() > 6).toStream()));
        c.put("suppress_windows", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(size(60, 60, 20)).count(win(Serdes.Long(), true))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        c.put("suppress_hopping_filtered", (b, h) -> outWindowed(in(b).groupByKey(g()).windowedBy(size(60, 30, 0)).count(win(Serdes.Long(), true))
            .filter((k, v) -> v > 1).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        c.put("suppress_time_limit", (b, h) -> out(rows(b, h)
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(70), Suppressed.BufferConfig.unbounded())).toStream()));
        c.put("suppress_max_records", (b, h) -> out(rows(b, h)
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(500), Suppressed.BufferConfig.maxRecords(3).emitEarlyWhenFull())).toStream()));
        c.put("suppress_max_bytes_group", (b, h) -> out(regroup(rows(b, false)
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(500), Suppressed.BufferConfig.maxBytes(150).emitEarlyWhenFull())))
            .reduce(Behaviours::plus, Behaviours::less, kv("r", h)).toStream()));
        c.put("join", (b, h) -> out(in(b).join(rows(b, h), (k, v, r) -> k + v + r, Joined.with(STR, STR, STR))));
        c.put("left_join", (b, h) -> out(in(b).leftJoin(rows(b, h), (v, r) -> v + r, Joined.with(STR, STR, STR))));
        c.put("join_rekeyed", (b, h) -> out(in(b).selectKey((k, v) -> v == null ? null : "k" + digit(v))
            .join(rows(b, h), (v, r) -> v + r, Joined.with(STR, STR, STR))));
        c.put("left_join_rekeyed", (b, h) -> out(in(b).selectKey((k, v) -> small(v) ? null : k)
            .leftJoin(rows(b, h), (v, r) -> v + r, Joined.with(STR, STR, STR))));
        c.put("join_view", (b, h) -> out(in(b).join(rows(b, h).filter((k, v) -> small(v)).mapValues(v -> v + "m"),
            (v, r) -> v + r, Joined.with(STR, STR, STR))));
        c.put("left_join_suppressed", (b, h) -> out(in(b).leftJoin(rows(b, h)
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(100), Suppressed.BufferConfig.unbounded())),
            (v, r) -> v + r, Joined.with(STR, STR, STR))));
        c.put("join_own_reduce", (b, h) -> {
            final KStream<String, String> s = in(b);
            out(s.leftJoin(s.groupByKey(g()).reduce(Behaviours::plus, kv("r", h)), (v, r) -> v + "/" + r, Joined.with(STR, STR, STR)));
        });
        c.put("global_join", (b, h) -> out(in(b).join(b.globalTable("rows", Consumed.with(STR, STR)),
            (k, v) -> v == null || digit(v) > 6 ? null : "k" + digit(v), (v, r) -> v + r)));
        c.put("global_left_join", (b, h) -> out(in(b).leftJoin(b.globalTable("rows", Consumed.with(STR, STR)),
            (k, v) -> v == null || digit(v) > 6 ? null : "k" + digit(v), (v, r) -> v + r)));
        c.put("stream_join", (b, h) -> out(in(b).join(other(b), (k, v, r) -> k + v + r, apart(200, 200, 100), sides())));
        c.put("stream_join_before", (b, h) -> out(in(b).join(other(b), (v, r) -> v + r, apart(300, 0, 0), sides())));
        c.put("stream_join_gap", (b, h) -> out(in(b).join(other(b), (v, r) -> v + r, apart(-10, 300, 40), sides())));
        c.put("stream_join_same_time", (b, h) -> out(coarse(in(b)).join(coarse(other(b)), (v, r) -> v + r, apart(0, 0, 300), sides())));
        c.put("stream_join_no_time", (b, h) -> out(in(b).join(other(b), (v, r) -> v + r, apart(0, 0, 0), sides())));
        c.put("stream_join_rekeyed", (b, h) -> out(in(b).selectKey((k, v) -> letter(v))
            .join(other(b).selectKey((k, v) -> letter(v)), (v, r) -> v + r, apart(100, 50, 10), sides())));
        c.put("stream_join_self", (b, h) -> {
            final KStream<String, String> s = in(b);
            out(s.join(s, (v, r) -> v + r, apart(30, 30, 20), sides()));
        });
        c.put("stream_left_join", (b, h) -> out(in(b).leftJoin(other(b), (k, v, r) -> k + v + r, apart(100, 100, 50), sides())));
        c.put("stream_outer_join", (b, h) -> out(in(b).outerJoin(other(b), (k, v, r) -> k + v + r, apart(100, 100, 50), sides().withStoreName("kept"))));
        c.put("stream_outer_join_before", (b, h) -> out(in(b).outerJoin(other(b), (v, r) -> v + r, apart(200, 0, 0), sides()
            .withDslStoreSuppliers(BuiltInDslStoreSuppliers.IN_MEMORY))));
        c.put("stream_left_join_gap", (b, h) -> out(in(b).leftJoin(other(b), (v, r) -> v + r, apart(-10, 200, 40), sides())));
        c.put("stream_outer_join_gap", (b, h) -> out(in(b).outerJoin(other(b), (v, r) -> v + r, apart(150, -20, 10), sides())));
        c.put("stream_outer_join_same_time", (b, h) -> out(coarse(in(b)).outerJoin(coarse(other(b)), (v, r) -> v + r, apart(0, 0, 300), sides())));
        c.put("stream_outer_join_no_time", (b, h) -> out(in(b).outerJoin(other(b), (v, r) -> v + r, apart(0, 0, 0), sides())));
        c.put("stream_outer_join_rekeyed", (b, h) -> out(in(b).selectKey((k, v) -> letter(v))
            .outerJoin(other(b).selectKey((k, v) -> letter(v)), (v, r) -> v + r, apart(100, 50, 10), sides())));
        c.put("stream_left_join_self", (b, h) -> {
            final KStream<String, String> s = in(b);
            out(s.leftJoin(s, (v, r) -> v + r, apart(-5, 30, 20), sides()));
        });
        c.put("siblings", (b, h) -> {
            final KStream<String, String> s = in(b);
            s.to("out", Produced.with(STR, STR));
            s.mapValues(v -> v + "-mapped").to("out", Produced.with(STR, STR));
            s.filter((k, v) -> small(v)).to("out", Produced.with(STR, STR));
            s.to("out", Produced.with(STR, STR));
        });
        c.put("origin_of_table", (b, h) -> out(rows(b, h).toStream().processValues(Origin::new)));
        c.put("origin_of_windows", (b, h) -> out(in(b).groupByKey(g()).windowedBy(size(60, 25, 10)).count(win(Serdes.Long(), h)).toStream()
            .processValues(Origin<Windowed<String>, Long>::new).selectKey((k, v) -> k.key() + "@" + k.window().start())));
        c.put("origin_of_suppressed", (b, h) -> out(rows(b, h)
            .suppress(Suppressed.untilTimeLimit(Duration.ofMillis(70), Suppressed.BufferConfig.unbounded())).toStream().processValues(Origin::new)));
        c.put("origin_of_two_tables", (b, h) -> out(rows(b, h).filter((k, v) -> small(v), kv("kept", h)).toStream().processValues(Origin::new)));
        c.put("topic_by_origin", (b, h) -> rows(b, h).toStream()
            .to((k, v, r) -> "rows".equals(r.topic()) && r.offset() % 2 == 0 ? "out" : "other", Produced.with(STR, STR)));
        c.put("windows_put_again", (b, h) -> outWindowed(in(b).processValues(Thrice::new).groupByKey(g()).windowedBy(size(50, 50, 200))
            .count(win(Serdes.Long(), h))));
        c.put("store_of_processors", (b, h) -> {
            final StoreBuilder<KeyValueStore<String, String>> s = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("s"), STR, STR);
            b.addStateStore(h ? s.withCachingEnabled() : s);
            in(b).process(Writer::new, "s").process(Second::new, "s").to("out", Produced.with(STR, STR));
        });
        windowCases(c);
        return c;
    }
}
