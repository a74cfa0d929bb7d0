import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What Kafka Streams does with generated records, for the aggregations of tests/oracle/window_results.
 *
 * Values are a letter and a digit, such as "c7". A golden file has the description of the topology, and what each
 * record writes to "out" and, in hexadecimal, to the internal topics.
 *
 * Run: java -cp <kafka-streams and test-utils> WindowResults.java run <directory>
 */
public class WindowResults {
    static final Serde<String> STR = Serdes.String();
    static final Serde<byte[]> RAW = Serdes.ByteArray();
    static final int RECORDS = 90;
    static final HexFormat HEX = HexFormat.of();

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
        config.put("default.key.serde", STR.getClass().getName());
        config.put("default.value.serde", STR.getClass().getName());
        config.put("state.dir", Files.createTempDirectory("oracle").toString());
        final Topology topology = builder.build();
        final String description = topology.describe().toString();
        final StringBuilder text = new StringBuilder(description);
        final Dice dice = new Dice(name.length() * 1000L + name.charAt(0));
        long now = 1000;
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config)) {
            for (int i = 0; i < RECORDS; i++) {
                final String topic = List.of("left", "left", "right", "third").get(dice.roll(4));
                final int k = dice.roll(6);
                final int v = dice.roll(7);
                final String key = k == 0 ? null : "k" + k;
                final String value = v == 0 ? null : "" + (char) ('a' + dice.roll(4)) + dice.roll(10);
                now += dice.roll(40);
                final long timestamp = Math.max(0, now - dice.roll(120));
                if (!description.contains("(topics: [" + topic + "])")) continue;
                driver.createInputTopic(topic, STR.serializer(), STR.serializer())
                    .pipeInput(new TestRecord<>(key, value, Instant.ofEpochMilli(timestamp)));
                text.append(topic).append(' ').append(key).append(' ').append(value).append(' ').append(timestamp).append('\n');
                for (final String produced : new TreeSet<>(driver.producedTopicNames())) {
                    // The order of records in the changelog of a suppression is that of a hash set.
                    if (produced.contains("SUPPRESS")) continue;
                    final boolean plain = produced.equals("out");
                    for (final TestRecord<byte[], byte[]> r : driver.createOutputTopic(produced, RAW.deserializer(), RAW.deserializer()).readRecordsToList()) {
                        text.append("  ").append(plain ? "" : produced + " ").append(show(r.key(), plain)).append(' ')
                            .append(show(r.value(), plain)).append(' ').append(r.timestamp()).append('\n');
                    }
                }
            }
            for (final String store : new TreeSet<>(driver.getAllStateStores().keySet()))
                text.append("store ").append(store).append('\n');
        }
        return text.toString();
    }

    static String show(final byte[] data, final boolean plain) {
        return data == null ? "null" : plain ? new String(data, StandardCharsets.UTF_8) : data.length == 0 ? "empty" : HEX.formatHex(data);
    }

    static class Dice {
        private long state;
        Dice(final long seed) { state = seed; }
        int roll(final int sides) {
            state = (state * 6364136223846793005L + 1442695040888963407L);
            return (int) ((state >>> 33) % sides);
        }
    }

    // What the user functions do; the same in running.py.
    static String letter(final String v) { return v == null ? null : v.substring(0, 1); }
    static String shown(final String v) { return v == null ? "n0" : v; }
    static String plus(final String k, final String v, final String a) { return a.length() > 30 ? shown(v) : a + "+" + shown(v); }
    static String less(final String k, final String v, final String a) { return a.length() > 30 ? shown(v) : a + "-" + shown(v); }
    static String gone(final String k, final String v, final String a) { return v == null || v.startsWith("a") ? null : a + "/" + v; }
    static String merge(final String k, final String x, final String y) { return x.length() + y.length() > 30 ? y : x + "&" + y; }

    static KStream<String, String> s(final StreamsBuilder b, final String topic) { return b.stream(topic, Consumed.with(STR, STR)); }
    static Grouped<String, String> g() { return Grouped.with(STR, STR); }
    static Grouped<String, String> g(final String name) { return Grouped.with(name, STR, STR); }
    static KGroupedStream<String, String> grouped(final StreamsBuilder b, final String topic) { return s(b, topic).groupByKey(g()); }
    static KGroupedStream<String, String> rekeyed(final StreamsBuilder b, final String topic, final Grouped<String, String> g) {
        return s(b, topic).groupBy((k, v) -> letter(v), g);
    }

    static CogroupedKStream<String, String> two(final StreamsBuilder b) {
        return grouped(b, "left").cogroup(WindowResults::plus).cogroup(grouped(b, "right"), WindowResults::less);
    }

    static CogroupedKStream<String, String> three(final StreamsBuilder b) {
        return two(b).cogroup(grouped(b, "third"), WindowResults::gone);
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kv(final boolean caching) { return cache(Materialized.as("sums"), caching); }
    static Materialized<String, String, WindowStore<Bytes, byte[]>> win(final boolean caching) { return cache(Materialized.as("sums"), caching); }
    static Materialized<String, String, SessionStore<Bytes, byte[]>> ses(final boolean caching) { return cache(Materialized.as("sums"), caching); }
    static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, String, S> cache(final Materialized<String, String, S> m, final boolean caching) {
        return cached(m.withKeySerde(STR).withValueSerde(STR), caching);
    }
    static <V, S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, V, S> cached(final Materialized<String, V, S> m, final boolean caching) {
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    static void out(final KStream<String, ?> s) { s.mapValues(v -> v == null ? null : v.toString()).to("out", Produced.with(STR, STR)); }
    static void out(final KTable<String, ?> t) { out(t.toStream()); }
    static void outWindowed(final KTable<Windowed<String>, ?> t) {
        out(t.toStream().selectKey((k, v) -> k.key() + "@" + k.window().start() + "-" + k.window().end()));
    }

    static Duration ms(final int ms) { return Duration.ofMillis(ms); }
    static TimeWindows time(final int size, final int advance, final int grace) {
        return TimeWindows.ofSizeAndGrace(ms(size), ms(grace)).advanceBy(ms(advance));
    }
    static SlidingWindows slide(final int size, final int grace) { return SlidingWindows.ofTimeDifferenceAndGrace(ms(size), ms(grace)); }
    static SessionWindows gap(final int gap, final int grace) { return SessionWindows.ofInactivityGapAndGrace(ms(gap), ms(grace)); }

    /** Says where the record at hand came from. */
    static class Origin<K> extends ContextualFixedKeyProcessor<K, String, String> {
        @Override
        public void process(final FixedKeyRecord<K, String> record) {
            final String from = context().recordMetadata().map(m -> m.topic() + m.partition() + "/" + m.offset()).orElse("nowhere");
            context().forward(record.withValue(record.value() + " from " + from));
        }
    }

    static void cogroups(final Map<String, BiConsumer<StreamsBuilder, Boolean>> c) {
        c.put("cogroup_one", (b, h) -> out(grouped(b, "left").cogroup(WindowResults::plus).aggregate(() -> "z", kv(h))));
        c.put("cogroup_two", (b, h) -> out(two(b).aggregate(() -> "z", kv(h))));
        c.put("cogroup_no_store", (b, h) -> out(two(b).aggregate(() -> "z")));
        c.put("cogroup_three_named", (b, h) -> out(three(b).aggregate(() -> "z", Named.as("all"), kv(h))));
        c.put("cogroup_rekeyed", (b, h) -> out(grouped(b, "left").cogroup(WindowResults::plus)
            .cogroup(rekeyed(b, "right", g()), WindowResults::less).aggregate(() -> "z")));
        c.put("cogroup_rekeyed_store", (b, h) -> out(grouped(b, "left").cogroup(WindowResults::plus)
            .cogroup(rekeyed(b, "right", g()), WindowResults::less).aggregate(() -> "z", kv(h))));
        c.put("cogroup_rekeyed_named", (b, h) -> out(rekeyed(b, "left", g("one")).cogroup(WindowResults::plus)
            .cogroup(rekeyed(b, "right", g("two")), WindowResults::less).cogroup(grouped(b, "third"), WindowResults::gone)
            .aggregate(() -> "z", Named.as("all"), kv(h))));
        c.put("cogroup_used_twice", (b, h) -> {
            final CogroupedKStream<String, String> both = rekeyed(b, "left", g()).cogroup(WindowResults::plus)
                .cogroup(rekeyed(b, "right", g("two")), WindowResults::less);
            out(both.aggregate(() -> "z"));
            outWindowed(both.windowedBy(time(60, 30, 10)).aggregate(() -> "w", cache(Materialized.with(STR, STR), false)));
        });
        c.put("cogroup_grouped", (b, h) -> out(three(b).aggregate(() -> "z", kv(true)).groupBy((k, v) -> KeyValue.pair(letter(k), v), g())
            .reduce((x, y) -> merge(null, x, y), (x, y) -> less(null, y, x), cache(Materialized.as("totals"), h))));
        c.put("cogroup_joined", (b, h) -> out(s(b, "third").leftJoin(two(b).aggregate(() -> "z", kv(h)).filter((k, v) -> v.length() > 4), (v, a) -> v + "=" + a, Joined.with(STR, STR, STR))));
        c.put("cogroup_origin", (b, h) -> out(two(b).aggregate(() -> "z", kv(h)).toStream().processValues(Origin::new)));
        c.put("cogroup_tumbling", (b, h) -> outWindowed(three(b).windowedBy(time(60, 60, 20)).aggregate(() -> "z", win(h))));
        c.put("cogroup_hopping_named", (b, h) -> outWindowed(two(b).windowedBy(time(90, 40, 30)).aggregate(() -> "z", Named.as("hops"), win(h))));
        c.put("cogroup_hopping_suppressed", (b, h) -> outWindowed(two(b).windowedBy(time(90, 40, 30)).aggregate(() -> "z", win(h)).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        c.put("cogroup_sliding", (b, h) -> outWindowed(three(b).windowedBy(slide(70, 60)).aggregate(() -> "z", win(h))));
        c.put("cogroup_sliding_in_memory", (b, h) -> outWindowed(two(b).windowedBy(slide(70, 20))
            .aggregate(() -> "z", win(h).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY))));
        c.put("cogroup_unlimited", (b, h) -> outWindowed(two(b).windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(1500))).aggregate(() -> "z", win(h))));
        c.put("cogroup_session", (b, h) -> outWindowed(three(b).windowedBy(gap(25, 40)).aggregate(() -> "z", WindowResults::merge, ses(h))));
        c.put("cogroup_session_named", (b, h) -> outWindowed(two(b).windowedBy(gap(25, 0)).aggregate(() -> "z", WindowResults::merge, Named.as("visits"))));
        c.put("cogroup_session_suppressed", (b, h) -> outWindowed(two(b).windowedBy(gap(20, 10)).aggregate(() -> "z", WindowResults::merge, ses(h)).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
    }

    static TimeWindowedKStream<String, String> closing(final StreamsBuilder b, final TimeWindows w) {
        return grouped(b, "left").windowedBy(w).emitStrategy(EmitStrategy.onWindowClose());
    }
    static TimeWindowedKStream<String, String> closing(final StreamsBuilder b, final SlidingWindows w) {
        return grouped(b, "left").windowedBy(w).emitStrategy(EmitStrategy.onWindowClose());
    }
    static SessionWindowedKStream<String, String> closing(final StreamsBuilder b, final SessionWindows w) {
        return grouped(b, "left").windowedBy(w).emitStrategy(EmitStrategy.onWindowClose());
    }
    static <S extends org.apache.kafka.streams.processor.StateStore> Materialized<String, Long, S> counts(final boolean caching) {
        final Materialized<String, Long, S> m = Materialized.<String, Long, S>as("sums").withKeySerde(STR).withValueSerde(Serdes.Long()).withRetention(DAY);
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }
    static final Duration DAY = Duration.ofDays(1);

    static void finals(final Map<String, BiConsumer<StreamsBuilder, Boolean>> c) {
        c.put("final_tumbling_count", (b, h) -> outWindowed(closing(b, time(60, 60, 20)).count(counts(h))));
        c.put("final_tumbling_retention", (b, h) -> outWindowed(closing(b, time(100, 100, 50)).aggregate(() -> "z", WindowResults::plus, win(h).withRetention(ms(600)))));
        c.put("final_tumbling_no_store", (b, h) -> outWindowed(closing(b, time(100, 100, 50)).count()));
        c.put("final_hopping_aggregate", (b, h) -> outWindowed(closing(b, time(90, 40, 30)).aggregate(() -> "z", WindowResults::gone, win(h).withRetention(DAY))));
        c.put("final_hopping_reduce_in_memory", (b, h) -> outWindowed(s(b, "left").filter((k, v) -> v != null).groupByKey(g())
            .windowedBy(time(60, 25, 10)).emitStrategy(EmitStrategy.onWindowClose())
            .reduce((x, y) -> plus(null, y, x), win(h).withRetention(DAY).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY))));
        c.put("final_sliding_count", (b, h) -> outWindowed(closing(b, slide(50, 40)).count(counts(h))));
        c.put("final_sliding_aggregate", (b, h) -> outWindowed(closing(b, slide(70, 60)).aggregate(() -> "z", WindowResults::gone, win(h).withRetention(DAY))));
        c.put("final_sliding_in_memory", (b, h) -> outWindowed(closing(b, slide(30, 0))
            .count(WindowResults.<WindowStore<Bytes, byte[]>>counts(h).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY))));
        c.put("final_session_count", (b, h) -> outWindowed(closing(b, gap(20, 0)).count(counts(h))));
        c.put("final_session_aggregate", (b, h) -> outWindowed(closing(b, gap(25, 40)).aggregate(() -> "z", WindowResults::gone, WindowResults::merge, ses(h))));
        c.put("final_session_reduce_in_memory", (b, h) -> outWindowed(closing(b, gap(30, 30)).reduce((x, y) -> plus(null, y, x),
            ses(h).withRetention(DAY).withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY))));
        c.put("final_regrouped", (b, h) -> out(rekeyed(b, "left", g()).windowedBy(time(60, 60, 20)).emitStrategy(EmitStrategy.onWindowClose())
            .count(counts(h)).groupBy((k, v) -> KeyValue.pair(k.key(), v), Grouped.with(STR, Serdes.Long()))
            .reduce((x, y) -> x + y, (x, y) -> x - y, cached(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>with(STR, Serdes.Long()), h))));
        c.put("final_suppressed", (b, h) -> outWindowed(closing(b, time(60, 60, 20)).count(counts(h))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        c.put("final_update", (b, h) -> outWindowed(closing(b, time(60, 60, 20)).emitStrategy(EmitStrategy.onWindowUpdate()).count(counts(h))));
        c.put("final_origin", (b, h) -> outWindowed(closing(b, time(60, 60, 20)).aggregate(() -> "z", WindowResults::plus, win(h).withRetention(DAY))
            .toStream().processValues(Origin<Windowed<String>>::new).toTable(Materialized.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60), STR))));
    }

    static Map<String, BiConsumer<StreamsBuilder, Boolean>> cases() {
        final Map<String, BiConsumer<StreamsBuilder, Boolean>> c = new LinkedHashMap<>();
        cogroups(c);
        finals(c);
        return c;
    }
}
