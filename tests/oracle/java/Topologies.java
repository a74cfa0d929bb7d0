import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.internals.InternalResourcesNaming;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The topologies of tests/oracle/topologies, built with Kafka Streams itself. One line of `cases` is one golden file.
 *
 * Run: java -cp <kafka-streams and test-utils> Topologies.java describe <directory>
 */
public class Topologies {
    static final Serde<String> STR = Serdes.String();
    static final Serde<Long> LONG = Serdes.Long();

    public static void main(final String[] args) throws IOException {
        final Path directory = Path.of(args[1]);
        Files.createDirectories(directory);
        if (args[0].equals("unnamed")) {
            final StringBuilder all = new StringBuilder();
            for (final Map.Entry<String, Supplier<Topology>> each : cases().entrySet()) {
                final String names = unnamed(each.getValue().get());
                if (!names.isEmpty()) all.append(each.getKey()).append(": ").append(names).append('\n');
            }
            Files.writeString(directory.resolve("unnamed.txt"), all.toString());
            return;
        }
        for (final Map.Entry<String, Supplier<Topology>> each : cases().entrySet()) {
            Files.writeString(directory.resolve(each.getKey() + ".txt"), each.getValue().get().describe().toString());
        }
    }

    /** The generated names that `ensure.explicit.internal.resource.naming` refuses. */
    static String unnamed(final Topology topology) {
        try {
            final Field builder = Topology.class.getDeclaredField("internalTopologyBuilder");
            builder.setAccessible(true);
            final Field names = InternalTopologyBuilder.class.getDeclaredField("implicitInternalNames");
            names.setAccessible(true);
            final Map<String, List<String>> found = new LinkedHashMap<>();
            for (final String kind : List.of("changelogs", "stores", "repartition topics")) found.put(kind, new ArrayList<>());
            for (final Object each : (Set<?>) names.get(builder.get(topology))) {
                final InternalResourcesNaming naming = (InternalResourcesNaming) each;
                if (naming.changelogTopic() != null) found.get("changelogs").add(naming.changelogTopic());
                if (naming.stateStore() != null) found.get("stores").add(naming.stateStore());
                if (naming.repartitionTopic() != null) found.get("repartition topics").add(naming.repartitionTopic());
            }
            final List<String> kinds = new ArrayList<>();
            found.forEach((kind, each) -> {
                if (!each.isEmpty()) kinds.add(kind + " " + String.join(", ", each));
            });
            return String.join("; ", kinds);
        } catch (final ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static Supplier<Topology> dsl(final Consumer<StreamsBuilder> write) {
        return () -> {
            final StreamsBuilder builder = new StreamsBuilder();
            write.accept(builder);
            return builder.build();
        };
    }

    static Consumed<String, String> in() {
        return Consumed.with(STR, STR);
    }

    static KStream<String, String> stream(final StreamsBuilder b, final String topic) {
        return b.stream(topic, in());
    }

    static KTable<String, String> table(final StreamsBuilder b, final String topic) {
        return b.table(topic, in());
    }

    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> store(final String name) {
        return Materialized.as(name);
    }

    static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> windows(final String name) {
        return Materialized.as(name);
    }

    static StoreBuilder<?> keyValue(final String name) {
        return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), STR, STR);
    }

    static TimeWindows hour() {
        return TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofMinutes(10));
    }

    static JoinWindows apart() {
        return JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(1));
    }

    static StreamJoined<String, String, String> sides() {
        return StreamJoined.with(STR, STR, STR);
    }

    static class Nothing implements Processor<String, String, String, String> {
        @Override public void process(final Record<String, String> record) { }
    }

    static class NothingFixed implements FixedKeyProcessor<String, String, String> {
        @Override public void process(final FixedKeyRecord<String, String> record) { }
    }

    static ProcessorSupplier<String, String, String, String> bringing(final String... stores) {
        return new ProcessorSupplier<>() {
            @Override public Processor<String, String, String, String> get() { return new Nothing(); }
            @Override public Set<StoreBuilder<?>> stores() {
                final Set<StoreBuilder<?>> builders = new java.util.LinkedHashSet<>();
                for (final String store : stores) builders.add(keyValue(store));
                return builders;
            }
        };
    }

    static class ByCarrier implements TopicNameExtractor<String, String> {
        @Override public String extract(final String key, final String value, final RecordContext context) { return key; }
        @Override public String toString() { return "by_carrier"; }
    }

    /** The same arithmetic as in topologies/by_hand.py, so that both sides draw the same graphs. */
    static class Dice {
        private long state;
        Dice(final long seed) { state = seed; }
        int roll(final int sides) {
            state = (state * 6364136223846793005L + 1442695040888963407L);
            return (int) ((state >>> 33) % sides);
        }
    }

    static Topology random(final int seed) {
        final Dice dice = new Dice(seed);
        final Topology topology = new Topology();
        final List<String> parents = new ArrayList<>();
        final List<String> processors = new ArrayList<>();
        final int sources = 1 + dice.roll(3);
        for (int i = 0; i < sources; i++) {
            final String name = "source-" + dice.roll(100) + "-" + i;
            final String[] topics = new String[1 + dice.roll(3)];
            for (int t = 0; t < topics.length; t++) topics[t] = "topic-" + i + "-" + dice.roll(1000) + "-" + t;
            topology.addSource(name, topics);
            parents.add(name);
        }
        final int count = 2 + dice.roll(9);
        for (int i = 0; i < count; i++) {
            final String name = "node-" + dice.roll(1000) + "-" + i;
            final List<String> above = new ArrayList<>();
            final int edges = 1 + dice.roll(3);
            for (int e = 0; e < edges; e++) {
                final String parent = parents.get(dice.roll(parents.size()));
                if (!above.contains(parent)) above.add(parent);
            }
            topology.addProcessor(name, Nothing::new, above.toArray(new String[0]));
            parents.add(name);
            processors.add(name);
        }
        final int stores = dice.roll(4);
        for (int i = 0; i < stores; i++) {
            final String name = "store-" + dice.roll(100) + "-" + i;
            topology.addStateStore(keyValue(name), processors.get(dice.roll(processors.size())));
            if (dice.roll(2) == 1) topology.connectProcessorAndStateStores(processors.get(dice.roll(processors.size())), name);
        }
        final int sinks = dice.roll(4);
        for (int i = 0; i < sinks; i++) {
            topology.addSink("sink-" + dice.roll(100) + "-" + i, "out-" + i, parents.get(dice.roll(parents.size())));
        }
        return topology;
    }

    static Map<String, Supplier<Topology>> cases() {
        final Map<String, Supplier<Topology>> c = new LinkedHashMap<>();

        // Sources, sinks, stateless operators
        c.put("stream_to", dsl(b -> stream(b, "in").to("out")));
        c.put("stream_of_many_topics", dsl(b ->
            b.stream(Arrays.asList("orders", "payments", "clicks", "views", "returns", "a", "b"), in()).to("out")));
        c.put("stream_of_pattern", dsl(b -> b.stream(Pattern.compile("orders-.*"), in()).to("out")));
        c.put("stream_named", dsl(b ->
            b.stream("in", in().withName("read")).filter((k, v) -> true, Named.as("keep")).to("out", Produced.as("write"))));
        c.put("stateless_all", dsl(b -> {
            final KStream<String, String> s = stream(b, "in");
            s.filter((k, v) -> true).filterNot((k, v) -> true).mapValues(v -> v).map((k, v) -> KeyValue.pair(k, v))
                .flatMapValues(v -> List.of(v)).flatMap((k, v) -> List.of(KeyValue.pair(k, v))).selectKey((k, v) -> k)
                .peek((k, v) -> { }).foreach((k, v) -> { });
            s.print(Printed.toSysOut());
        }));
        c.put("stateless_named", dsl(b -> {
            final KStream<String, String> s = stream(b, "in");
            s.filterNot((k, v) -> true, Named.as("not")).mapValues(v -> v, Named.as("values"))
                .map((k, v) -> KeyValue.pair(k, v), Named.as("pairs")).flatMapValues(v -> List.of(v), Named.as("many"))
                .selectKey((k, v) -> k, Named.as("rekey")).peek((k, v) -> { }, Named.as("look")).to("out");
            s.print(Printed.<String, String>toSysOut().withName("show"));
            s.foreach((k, v) -> { }, Named.as("each"));
        }));
        c.put("to_by_extractor", dsl(b -> stream(b, "in").to(new ByCarrier(), Produced.with(STR, STR))));
        c.put("same_topic_twice", dsl(b -> {
            stream(b, "in").mapValues(v -> v).to("one");
            stream(b, "in").filter((k, v) -> true).to("two");
            stream(b, "other").to("three");
        }));
        c.put("same_pattern_twice", dsl(b -> {
            b.stream(Pattern.compile("x.*"), in()).to("one");
            b.stream(Pattern.compile("x.*"), in()).to("two");
        }));
        c.put("merge", dsl(b -> stream(b, "left").merge(stream(b, "right")).to("out")));
        c.put("merge_three_named", dsl(b ->
            stream(b, "a").merge(stream(b, "b"), Named.as("both")).merge(stream(b, "c")).to("out")));
        c.put("split", dsl(b -> {
            final Map<String, KStream<String, String>> branches = stream(b, "in").split()
                .branch((k, v) -> true).branch((k, v) -> false).defaultBranch();
            branches.get("KSTREAM-BRANCH-00000000011").to("one");
            branches.get("KSTREAM-BRANCH-00000000012").to("two");
            branches.get("KSTREAM-BRANCH-00000000010").to("rest");
        }));
        c.put("split_named", dsl(b -> {
            final Map<String, KStream<String, String>> branches = stream(b, "in").split(Named.as("by-"))
                .branch((k, v) -> true, Branched.as("size")).branch((k, v) -> false, Branched.withConsumer(s -> s.to("two")))
                .noDefaultBranch();
            branches.get("by-size").to("one");
        }));
        c.put("split_merge_group", dsl(b -> {
            final Map<String, KStream<String, String>> branches = stream(b, "in").selectKey((k, v) -> v).split(Named.as("b-"))
                .branch((k, v) -> true, Branched.as("x")).defaultBranch(Branched.as("y"));
            branches.get("b-x").mapValues(v -> v).merge(branches.get("b-y")).groupByKey(Grouped.with(STR, STR)).count()
                .toStream().to("out");
        }));

        // Processor API inside the DSL
        c.put("process", dsl(b -> stream(b, "in").process(Nothing::new).to("out", Produced.with(STR, STR))));
        c.put("process_named_with_store", dsl(b -> {
            b.addStateStore(keyValue("memory"));
            stream(b, "in").process(Nothing::new, Named.as("work"), "memory").to("out", Produced.with(STR, STR));
        }));
        c.put("process_bringing_stores", dsl(b ->
            stream(b, "in").process(bringing("zeta", "alpha", "mid")).groupByKey(Grouped.with(STR, STR)).count()));
        c.put("process_values", dsl(b -> {
            b.addStateStore(keyValue("memory"));
            stream(b, "in").processValues(NothingFixed::new, "memory").groupByKey(Grouped.with(STR, STR)).count();
        }));
        c.put("shared_store_joins_subtopologies", dsl(b -> {
            b.addStateStore(keyValue("shared"));
            stream(b, "one").process(Nothing::new, "shared");
            stream(b, "two").to("out");
            stream(b, "three").process(Nothing::new, "shared");
        }));

        // Repartitioning
        c.put("repartition", dsl(b -> stream(b, "in").repartition().to("out")));
        c.put("repartition_named", dsl(b ->
            stream(b, "in").repartition(Repartitioned.<String, String>as("spread").withNumberOfPartitions(5)).to("out")));
        c.put("repartition_then_count", dsl(b -> stream(b, "in").selectKey((k, v) -> v)
            .repartition(Repartitioned.with(STR, STR)).groupByKey(Grouped.with(STR, STR)).count()));

        // Aggregations
        c.put("count", dsl(b -> stream(b, "in").groupByKey().count().toStream().to("out", Produced.with(STR, LONG))));
        c.put("count_store", dsl(b -> stream(b, "in").groupByKey().count(store("counts"))));
        c.put("count_named", dsl(b -> stream(b, "in").groupByKey().count(Named.as("counting"), store("counts"))));
        c.put("count_serdes_only", dsl(b -> stream(b, "in").groupByKey().count(Materialized.with(STR, LONG)).toStream().to("out")));
        c.put("count_rekeyed", dsl(b -> stream(b, "in").selectKey((k, v) -> v).groupByKey(Grouped.with(STR, STR)).count()));
        c.put("group_by_count", dsl(b -> stream(b, "in").groupBy((k, v) -> v, Grouped.with(STR, STR)).count()));
        c.put("group_by_count_store", dsl(b -> stream(b, "in").groupBy((k, v) -> v, Grouped.with(STR, STR)).count(store("counts"))));
        c.put("group_by_named", dsl(b -> stream(b, "in").groupBy((k, v) -> v, Grouped.with("regroup", STR, STR)).count()));
        c.put("grouped_twice", dsl(b -> {
            final KGroupedStream<String, String> g = stream(b, "in").groupBy((k, v) -> v, Grouped.with(STR, STR));
            g.count();
            g.reduce((x, y) -> y);
        }));
        c.put("grouped_twice_named", dsl(b -> {
            final KGroupedStream<String, String> g = stream(b, "in").groupBy((k, v) -> v, Grouped.with("regroup", STR, STR));
            g.count();
            g.reduce((x, y) -> y);
            g.aggregate(() -> "", (k, v, a) -> a);
        }));
        c.put("reduce", dsl(b -> stream(b, "in").groupByKey().reduce((x, y) -> y).toStream().to("out")));
        c.put("reduce_store_named", dsl(b -> stream(b, "in").groupByKey().reduce((x, y) -> y, Named.as("last"), store("lasts"))));
        c.put("aggregate", dsl(b -> stream(b, "in").groupByKey().aggregate(() -> "", (k, v, a) -> a).toStream().to("out")));
        c.put("aggregate_store", dsl(b -> stream(b, "in").groupByKey().aggregate(() -> "", (k, v, a) -> a, store("aggs"))));
        c.put("window_count", dsl(b -> stream(b, "in").groupByKey().windowedBy(hour()).count().toStream((k, v) -> k.key()).to("out")));
        c.put("window_count_store", dsl(b -> stream(b, "in").groupBy((k, v) -> v, Grouped.with(STR, STR)).windowedBy(hour())
            .count(Topologies.<Long>windows("hourly").withRetention(Duration.ofDays(1)))));
        c.put("window_count_serdes_only", dsl(b -> stream(b, "in").groupByKey().windowedBy(hour()).count(Materialized.with(STR, LONG))));
        c.put("window_hopping_aggregate", dsl(b -> stream(b, "in").groupByKey()
            .windowedBy(hour().advanceBy(Duration.ofMinutes(5))).aggregate(() -> "", (k, v, a) -> a, Named.as("hop"))));
        c.put("window_reduce", dsl(b -> stream(b, "in").groupByKey().windowedBy(hour()).reduce((x, y) -> y)));

        // Tables
        c.put("table", dsl(b -> table(b, "in").toStream().to("out")));
        c.put("table_store", dsl(b -> b.table("in", in(), store("rows"))));
        c.put("table_named", dsl(b -> b.table("in", in().withName("rows")).toStream(Named.as("changes")).to("out")));
        c.put("table_to_stream_named_with_key", dsl(b -> table(b, "in").toStream((k, v) -> v, Named.as("changes")).groupByKey().count()));
        c.put("table_serdes_only", dsl(b -> b.table("in", Materialized.with(STR, STR)).toStream().to("out")));
        c.put("table_filter_map", dsl(b -> table(b, "in").filter((k, v) -> true).mapValues(v -> v).filterNot((k, v) -> false)
            .toStream().to("out")));
        c.put("table_filter_map_stores", dsl(b -> table(b, "in").filter((k, v) -> true, store("kept"))
            .mapValues(v -> v, Named.as("mapped"), store("values")).toStream().to("out")));
        c.put("table_filter_map_serdes_only", dsl(b -> table(b, "in").filter((k, v) -> true, Materialized.with(STR, STR))
            .mapValues(v -> v, Materialized.with(STR, STR)).toStream().to("out")));
        c.put("table_group_by_count", dsl(b -> table(b, "in").groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with(STR, STR)).count()
            .toStream().to("out")));
        c.put("table_group_by_reduce", dsl(b -> table(b, "in").groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with(STR, STR))
            .reduce((x, y) -> x, (x, y) -> x, store("sums"))));
        c.put("table_group_by_aggregate_named", dsl(b -> table(b, "in")
            .groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with("regroup", STR, STR))
            .aggregate(() -> "", (k, v, a) -> a, (k, v, a) -> a, Named.as("sum"))));
        c.put("table_grouped_twice", dsl(b -> {
            final KGroupedTable<String, String> g = table(b, "in").groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with(STR, STR));
            g.count();
            g.reduce((x, y) -> x, (x, y) -> x);
        }));
        c.put("table_grouped_twice_named", dsl(b -> {
            final KGroupedTable<String, String> g = table(b, "in")
                .groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with("regroup", STR, STR));
            g.count();
            g.reduce((x, y) -> x, (x, y) -> x);
        }));
        c.put("table_filter_then_group", dsl(b -> table(b, "in").filter((k, v) -> true).mapValues(v -> v)
            .groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with(STR, STR)).count(store("counts"))));
        c.put("to_table", dsl(b -> stream(b, "in").toTable().toStream().to("out")));
        c.put("to_table_store", dsl(b -> stream(b, "in").toTable(store("rows"))));
        c.put("to_table_named", dsl(b -> stream(b, "in").toTable(Named.as("rows")).filter((k, v) -> true).toStream().to("out")));
        c.put("to_table_rekeyed", dsl(b -> stream(b, "in").selectKey((k, v) -> v).toTable(Materialized.with(STR, STR)).toStream().to("out")));
        c.put("to_table_rekeyed_named", dsl(b -> stream(b, "in").selectKey((k, v) -> v)
            .toTable(Named.as("rows"), Materialized.with(STR, STR)).toStream().to("out")));

        // Suppress
        c.put("suppress_windows", dsl(b -> stream(b, "in").groupByKey().windowedBy(hour()).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream((k, v) -> k.key()).to("out")));
        c.put("suppress_windows_named", dsl(b -> stream(b, "in").groupByKey().windowedBy(hour()).count(windows("hourly"))
            .filter((k, v) -> true)
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("final")).toStream()));
        c.put("suppress_time_limit", dsl(b -> table(b, "in")
            .suppress(Suppressed.untilTimeLimit(Duration.ofSeconds(10), Suppressed.BufferConfig.maxRecords(10)))
            .toStream().to("out")));
        c.put("suppress_filtered_table", dsl(b -> table(b, "in").filter((k, v) -> true).mapValues(v -> v)
            .suppress(Suppressed.untilTimeLimit(Duration.ofSeconds(10), Suppressed.BufferConfig.unbounded()))
            .groupBy((k, v) -> KeyValue.pair(v, v), Grouped.with(STR, STR)).count()));

        // Joins
        c.put("join_table", dsl(b -> stream(b, "in").join(table(b, "rows"), (v, r) -> v).to("out", Produced.with(STR, STR))));
        c.put("left_join_table", dsl(b -> {
            final KTable<String, String> rows = table(b, "rows");
            stream(b, "in").leftJoin(rows, (v, r) -> v).to("out", Produced.with(STR, STR));
        }));
        c.put("join_table_store_named", dsl(b -> stream(b, "in")
            .join(b.table("rows", in(), store("kept")), (v, r) -> v, Joined.as("enrich")).to("out", Produced.with(STR, STR))));
        c.put("join_table_rekeyed", dsl(b -> stream(b, "in").selectKey((k, v) -> v)
            .join(table(b, "rows"), (v, r) -> v, Joined.with(STR, STR, STR)).to("out", Produced.with(STR, STR))));
        c.put("left_join_table_rekeyed_named", dsl(b -> stream(b, "in").map((k, v) -> KeyValue.pair(v, v))
            .leftJoin(table(b, "rows"), (v, r) -> v, Joined.with(STR, STR, STR, "enrich")).to("out", Produced.with(STR, STR))));
        c.put("join_two_tables_rekeyed", dsl(b -> {
            final KStream<String, String> s = stream(b, "in").selectKey((k, v) -> v);
            s.join(table(b, "rows"), (v, r) -> v, Joined.with(STR, STR, STR)).to("one", Produced.with(STR, STR));
            s.leftJoin(table(b, "more"), (v, r) -> v, Joined.with(STR, STR, STR)).to("two", Produced.with(STR, STR));
        }));
        c.put("join_filtered_table", dsl(b -> stream(b, "in")
            .join(table(b, "rows").filter((k, v) -> true).mapValues(v -> v), (v, r) -> v).to("out", Produced.with(STR, STR))));
        c.put("join_aggregated_table", dsl(b -> {
            final KTable<String, Long> counts = stream(b, "clicks").groupBy((k, v) -> v, Grouped.with(STR, STR)).count();
            stream(b, "in").join(counts, (v, n) -> v + n).to("out", Produced.with(STR, STR));
        }));
        c.put("join_own_count", dsl(b -> {
            final KStream<String, String> s = stream(b, "in");
            s.join(s.groupByKey().count(), (v, n) -> v + n).to("out", Produced.with(STR, STR));
        }));
        c.put("join_suppressed_table", dsl(b -> stream(b, "in")
            .join(table(b, "rows").suppress(Suppressed.untilTimeLimit(Duration.ofSeconds(1), Suppressed.BufferConfig.unbounded())),
                (v, r) -> v).to("out", Produced.with(STR, STR))));
        c.put("join_to_table", dsl(b -> stream(b, "in")
            .join(stream(b, "rows").selectKey((k, v) -> v).toTable(Materialized.with(STR, STR)), (v, r) -> v)
            .to("out", Produced.with(STR, STR))));
        c.put("join_chain", dsl(b -> stream(b, "in").join(table(b, "rows"), (v, r) -> v).selectKey((k, v) -> v)
            .join(table(b, "more"), (v, r) -> v, Joined.with(STR, STR, STR)).groupByKey(Grouped.with(STR, STR)).count()
            .toStream().to("out")));
        c.put("stream_join", dsl(b -> stream(b, "in").join(stream(b, "others"), (v, r) -> v, apart(), sides())
            .to("out", Produced.with(STR, STR))));
        c.put("stream_join_named", dsl(b -> stream(b, "in").join(stream(b, "others"), (v, r) -> v, apart(), sides().withName("pair"))
            .to("out", Produced.with(STR, STR))));
        c.put("stream_join_store", dsl(b -> stream(b, "in").join(stream(b, "others"), (v, r) -> v, apart(), sides().withStoreName("kept"))
            .to("out", Produced.with(STR, STR))));
        c.put("stream_join_rekeyed", dsl(b -> stream(b, "in").selectKey((k, v) -> v)
            .join(stream(b, "others").selectKey((k, v) -> v), (v, r) -> v, apart(), sides()).groupByKey(Grouped.with(STR, STR)).count()));
        c.put("stream_join_rekeyed_named", dsl(b -> stream(b, "in").selectKey((k, v) -> v)
            .join(stream(b, "others").selectKey((k, v) -> v), (v, r) -> v, apart(), sides().withName("pair").withStoreName("kept"))
            .to("out", Produced.with(STR, STR))));
        c.put("stream_join_self", dsl(b -> {
            final KStream<String, String> s = stream(b, "in");
            s.join(s, (v, r) -> v, apart(), sides()).to("out", Produced.with(STR, STR));
        }));
        c.put("stream_left_join", dsl(b -> stream(b, "in").leftJoin(stream(b, "others"), (v, r) -> v, apart(), sides())
            .to("out", Produced.with(STR, STR))));
        c.put("stream_left_join_named", dsl(b -> stream(b, "in").leftJoin(stream(b, "others"), (v, r) -> v, apart(), sides().withName("pair").withStoreName("kept"))
            .to("out", Produced.with(STR, STR))));
        c.put("stream_outer_join", dsl(b -> stream(b, "in").outerJoin(stream(b, "others"), (v, r) -> v, apart(), sides())
            .to("out", Produced.with(STR, STR))));
        c.put("stream_outer_join_named", dsl(b -> stream(b, "in").outerJoin(stream(b, "others"), (v, r) -> v, apart(), sides().withName("pair").withStoreName("kept"))
            .to("out", Produced.with(STR, STR))));
        c.put("stream_outer_join_rekeyed", dsl(b -> stream(b, "in").selectKey((k, v) -> v)
            .outerJoin(stream(b, "others").selectKey((k, v) -> v), (v, r) -> v, apart(), sides()).groupByKey(Grouped.with(STR, STR)).count()));
        c.put("stream_join_chain", dsl(b -> {
            final KStream<String, String> s = stream(b, "in").selectKey((k, v) -> v);
            s.join(stream(b, "others"), (v, r) -> v, apart(), sides())
                .join(s.mapValues(v -> v), (v, r) -> v, apart(), sides()).to("out", Produced.with(STR, STR));
        }));
        c.put("global_join", dsl(b -> stream(b, "in").join(b.globalTable("all", in()), (k, v) -> v, (v, g) -> v)
            .to("out", Produced.with(STR, STR))));
        c.put("global_left_join_named", dsl(b -> {
            final GlobalKTable<String, String> all = b.globalTable("all", in().withName("everywhere"), store("all-rows"));
            stream(b, "in").selectKey((k, v) -> v).leftJoin(all, (k, v) -> v, (v, g) -> v, Named.as("enrich"))
                .groupByKey(Grouped.with(STR, STR)).count();
        }));
        c.put("global_store", dsl(b -> {
            stream(b, "in").to("out");
            b.addGlobalStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("everything"), STR, STR).withLoggingDisabled(),
                "all", in(), () -> new Processor<String, String, Void, Void>() {
                    @Override public void process(final Record<String, String> record) { }
                });
            stream(b, "later").to("after");
        }));
        c.put("flights", dsl(b -> {
            final GlobalKTable<String, String> airlines = b.globalTable("airlines", in());
            final KTable<String, String> planes = b.table("planes", in());
            stream(b, "flights").join(airlines, (k, v) -> v, (v, a) -> v).selectKey((k, v) -> v)
                .leftJoin(planes, (v, p) -> v, Joined.with(STR, STR, STR))
                .groupBy((k, v) -> v, Grouped.with(STR, STR)).windowedBy(hour()).aggregate(() -> "", (k, v, a) -> a, windows("delays"))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream((k, v) -> k.key())
                .to("delays-by-airport");
        }));

        // Processor API
        c.put("papi", () -> {
            final Topology t = new Topology();
            t.addSource("source", "in", "more");
            t.addProcessor("work", Nothing::new, "source");
            t.addStateStore(keyValue("memory"), "work");
            t.addSink("sink", "out", "work", "source");
            return t;
        });
        c.put("papi_diamond", () -> {
            final Topology t = new Topology();
            t.addSource("top", "in");
            t.addProcessor("left", Nothing::new, "top");
            t.addProcessor("right", Nothing::new, "top");
            t.addProcessor("deep", Nothing::new, "right");
            t.addProcessor("bottom", Nothing::new, "left", "deep");
            t.addSink("z-sink", "out", "bottom");
            t.addSink("a-sink", "out2", "left");
            return t;
        });
        c.put("papi_many_stores", () -> {
            final Topology t = new Topology();
            t.addSource("source", "in");
            t.addProcessor("work", Nothing::new, "source");
            for (int i = 0; i < 14; i++) t.addStateStore(keyValue("store-" + i * 37), "work");
            t.addProcessor("twelve", Nothing::new, "source");
            for (int i = 0; i < 12; i++) t.connectProcessorAndStateStores("twelve", "store-" + i * 37);
            return t;
        });
        c.put("papi_global_between", () -> {
            final Topology t = new Topology();
            t.addSource("one", "in");
            t.addGlobalStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("all"), STR, STR).withLoggingDisabled(),
                "global-source", STR.deserializer(), STR.deserializer(), "everything", "global-processor",
                () -> new Processor<String, String, Void, Void>() {
                    @Override public void process(final Record<String, String> record) { }
                });
            t.addSource("two", Pattern.compile("other.*"));
            t.addProcessor("work", Nothing::new, "two");
            return t;
        });
        c.put("papi_read_only_store", () -> {
            final Topology t = new Topology();
            t.addSource("one", "in");
            t.addProcessor("first", Nothing::new, "one");
            t.addReadOnlyStateStore(keyValue("rates"), "rates-source", STR.deserializer(), STR.deserializer(), "rates", "rates-processor",
                () -> new Processor<String, String, Void, Void>() {
                    @Override public void process(final Record<String, String> record) { }
                });
            t.addSource("two", "more");
            t.addProcessor("work", Nothing::new, "two");
            t.connectProcessorAndStateStores("work", "rates");
            return t;
        });
        windowCases(c);
        for (int seed = 1; seed <= 40; seed++) {
            final int fixed = seed;
            c.put(String.format("random_%02d", seed), () -> random(fixed));
        }
        return c;
    }

    static SlidingWindows sliding() {
        return SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofHours(1), Duration.ofMinutes(10));
    }

    /** Those of topologies/windows.py. */
    static void windowCases(final Map<String, Supplier<Topology>> c) {
        c.put("sliding_count", dsl(b -> stream(b, "in").groupByKey().windowedBy(sliding()).count().toStream((k, v) -> k.key()).to("out")));
        c.put("sliding_count_store", dsl(b -> stream(b, "in").groupBy((k, v) -> v, Grouped.with(STR, STR)).windowedBy(sliding())
            .count(Topologies.<Long>windows("slides").withRetention(Duration.ofDays(1)))));
        c.put("sliding_count_serdes_only", dsl(b -> stream(b, "in").groupByKey().windowedBy(sliding()).count(Materialized.with(STR, LONG))));
        c.put("sliding_aggregate_named", dsl(b -> stream(b, "in").groupByKey()
            .windowedBy(sliding()).aggregate(() -> "", (k, v, a) -> a, Named.as("slide"))));
        c.put("sliding_reduce", dsl(b -> stream(b, "in").groupByKey().windowedBy(sliding()).reduce((x, y) -> y)
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        c.put("unlimited_count", dsl(b -> stream(b, "in").groupByKey().windowedBy(UnlimitedWindows.of()).count().toStream((k, v) -> k.key()).to("out")));
    }
}
