import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.internals.NamedInternal;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/** The topology of a case: each step is one call of the DSL. The same steps are in ours/. */
final class Topologies {
    static final Serde<Object> STRING = Processors.cast(Serdes.String());
    static final Serde<Object> LONG = Processors.cast(Serdes.Long());

    /** What a step made, with the serdes of its keys and values. `plain` is the serde of a key without its window. */
    private record Handle(Object it, Serde<Object> key, Serde<Object> value, Serde<Object> plain) {
        Handle(final Object it, final Serde<Object> key, final Serde<Object> value) { this(it, key, value, key); }
        KStream<Object, Object> stream() { return Processors.cast(it); }
        KTable<Object, Object> table() { return Processors.cast(it); }
        GlobalKTable<Object, Object> global() { return Processors.cast(it); }
        KGroupedStream<Object, Object> grouped() { return Processors.cast(it); }
        KGroupedTable<Object, Object> groupedTable() { return Processors.cast(it); }
        TimeWindowedKStream<Object, Object> windowed() { return Processors.cast(it); }
        SessionWindowedKStream<Object, Object> sessions() { return Processors.cast(it); }
        CogroupedKStream<Object, Object> cogrouped() { return Processors.cast(it); }
        TimeWindowedCogroupedKStream<Object, Object> windowedCogrouped() { return Processors.cast(it); }
        SessionWindowedCogroupedKStream<Object, Object> sessionsCogrouped() { return Processors.cast(it); }
        Handle with(final Object other) { return new Handle(other, key, value, plain); }
        Handle strings(final Object other) { return new Handle(other, key, STRING, plain); }
        Handle rekeyed(final Object other) { return new Handle(other, STRING, value); }
    }

    /** What `peek` and `foreach` were called with: id of the step, key, value. */
    final List<List<String>> effects = new ArrayList<>();
    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<String, Handle> handles = new HashMap<>();
    /** What is added when the DSL's part is built. */
    private final List<java.util.function.Consumer<Topology>> added = new ArrayList<>();

    Topology build(final JsonNode steps, final Properties config) {
        for (final JsonNode step : steps) {
            final Handle made = step(step);
            if (made != null) handles.put(step.get("id").asText(), made);
        }
        final Topology topology = builder.build(config);
        added.forEach(each -> each.accept(topology));
        return topology;
    }

    private Handle of(final JsonNode step, final int index) {
        final String id = step.get("of").get(index).asText();
        if (!handles.containsKey(id)) throw new IllegalArgumentException("step " + step.get("id") + " uses " + id + ", which no step before it made");
        return handles.get(id);
    }

    private static String name(final JsonNode step) { return step.hasNonNull("name") ? step.get("name").asText() : null; }
    private static Named named(final JsonNode step) { return step.hasNonNull("name") ? Named.as(name(step)) : NamedInternal.empty(); }
    private static String text(final JsonNode step, final String field) { return step.get(field).asText(); }
    private static Duration ms(final JsonNode step, final String field) { return Duration.ofMillis(step.get(field).asLong()); }
    private static boolean has(final JsonNode step, final String field) { return step.hasNonNull(field); }

    private Handle step(final JsonNode s) {
        final String op = text(s, "op");
        final int dot = op.indexOf('.');
        switch (op.substring(0, dot)) {
            case "StreamsBuilder": return ofBuilder(s, op);
            case "Topology": return ofTopology(s, op, of(s, 0));
            case "KStream": return ofStream(s, op, of(s, 0));
            case "KTable": return ofTable(s, op, of(s, 0));
            case "KGroupedStream": return ofGrouped(s, op, of(s, 0));
            case "KGroupedTable": return ofGroupedTable(s, op, of(s, 0));
            case "TimeWindowedKStream": return ofWindowed(s, op, of(s, 0));
            case "SessionWindowedKStream": return ofSessions(s, op, of(s, 0));
            case "CogroupedKStream": case "TimeWindowedCogroupedKStream": case "SessionWindowedCogroupedKStream":
                return ofCogrouped(s, op, of(s, 0));
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    // The options of stores

    private static <S extends StateStore> Materialized<Object, Object, S> options(
            final Materialized<Object, Object, S> start, final JsonNode store, final Serde<Object> key, final Serde<Object> value) {
        Materialized<Object, Object, S> m = start.withKeySerde(key).withValueSerde(value);
        if (has(store, "caching")) m = store.get("caching").asBoolean() ? m.withCachingEnabled() : m.withCachingDisabled();
        if (has(store, "logging") && !store.get("logging").asBoolean()) m = m.withLoggingDisabled();
        if (has(store, "in_memory")) m = m.withStoreType(BuiltInDslStoreSuppliers.IN_MEMORY);
        if (has(store, "retention")) m = m.withRetention(ms(store, "retention"));
        return m;
    }

    private static <S extends StateStore> Materialized<Object, Object, S> named(final JsonNode store, final Serde<Object> key, final Serde<Object> value) {
        return options(has(store, "name") ? Materialized.as(name(store)) : Materialized.with(key, value), store, key, value);
    }

    private static Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> keyValue(final JsonNode step, final Serde<Object> key, final Serde<Object> value) {
        final JsonNode store = step.get("store");
        if (has(store, "versioned"))
            return options(Materialized.as(new QuickVersions(name(store), ms(store, "versioned"))), store, key, value);
        if (has(store, "lru"))
            return options(Materialized.as(Stores.lruMap(name(store), store.get("lru").asInt())), store, key, value);
        return named(store, key, value);
    }

    private static Materialized<Object, Object, WindowStore<Bytes, byte[]>> windows(final JsonNode step, final Serde<Object> key, final Serde<Object> value) {
        return named(step.get("store"), key, value);
    }

    private static Materialized<Object, Object, SessionStore<Bytes, byte[]>> sessions(final JsonNode step, final Serde<Object> key, final Serde<Object> value) {
        return named(step.get("store"), key, value);
    }

    private static Initializer<Object> initializer(final JsonNode step) {
        final Object initial = Functions.initial(text(step, "initial"));
        return () -> initial;
    }

    private static Aggregator<Object, Object, Object> aggregator(final JsonNode step, final String field) {
        return Functions.aggregator(text(step, field))::apply;
    }

    private static Reducer<Object> reducer(final JsonNode step, final String field) { return Functions.reducer(text(step, field))::apply; }

    // Sources

    private Handle ofBuilder(final JsonNode s, final String op) {
        final Consumed<Object, Object> consumed = has(s, "name") ? Consumed.with(STRING, STRING).withName(name(s)) : Consumed.with(STRING, STRING);
        if (has(s, "halved")) consumed.withTimestampExtractor((record, partitionTime) -> record.timestamp() / 2);
        switch (op) {
            case "StreamsBuilder.stream": {
                final List<String> topics = new ArrayList<>();
                if (has(s, "pattern")) return new Handle(builder.stream(java.util.regex.Pattern.compile(text(s, "pattern")), consumed), STRING, STRING);
                for (final JsonNode topic : s.get("topics")) topics.add(topic.asText());
                return new Handle(builder.stream(topics, consumed), STRING, STRING);
            }
            case "StreamsBuilder.table":
                return new Handle(has(s, "store") ? builder.table(text(s, "topic"), consumed, keyValue(s, STRING, STRING))
                    : builder.table(text(s, "topic"), consumed), STRING, STRING);
            case "StreamsBuilder.globalTable":
                return new Handle(has(s, "store") ? builder.globalTable(text(s, "topic"), consumed, keyValue(s, STRING, STRING))
                    : builder.globalTable(text(s, "topic"), consumed), STRING, STRING);
            case "StreamsBuilder.addStateStore":
                builder.addStateStore(store(s));
                return null;
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    private static StoreBuilder<?> store(final JsonNode s) {
        final String name = name(s);
        final Duration retention = has(s, "retention") ? ms(s, "retention") : null;
        final boolean memory = has(s, "in_memory");
        final StoreBuilder<?> made;
        switch (text(s, "kind")) {
            case "key-value":
                made = Stores.keyValueStoreBuilder(memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name), STRING, STRING);
                break;
            case "timestamped":
                made = Stores.timestampedKeyValueStoreBuilder(memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentTimestampedKeyValueStore(name), STRING, STRING);
                break;
            case "lru":
                made = Stores.keyValueStoreBuilder(Stores.lruMap(name, s.get("lru").asInt()), STRING, STRING);
                break;
            case "versioned":
                made = Stores.versionedKeyValueStoreBuilder(new QuickVersions(name, retention), STRING, STRING);
                break;
            case "window":
                made = Stores.windowStoreBuilder(memory ? Stores.inMemoryWindowStore(name, retention, Duration.ofMillis(10), false)
                    : Stores.persistentWindowStore(name, retention, Duration.ofMillis(10), false), STRING, STRING);
                break;
            case "session":
                made = Stores.sessionStoreBuilder(memory ? Stores.inMemorySessionStore(name, retention) : Stores.persistentSessionStore(name, retention), STRING, STRING);
                break;
            default: throw new IllegalArgumentException("unknown kind of store " + text(s, "kind"));
        }
        if (has(s, "caching")) return made.withCachingEnabled();
        return made;
    }

    /** A store that a topic fills, and a processor that looks up the key of each record of a stream in it. */
    private Handle ofTopology(final JsonNode s, final String op, final Handle a) {
        if (!op.equals("Topology.addReadOnlyStateStore")) throw new IllegalArgumentException("unknown operator " + op);
        final String id = text(s, "id");
        a.stream().peek((k, v) -> { }, Named.as("above-" + id));
        added.add(topology -> {
            topology.addReadOnlyStateStore(shared(s, "shared-" + id), "source-" + id, STRING.deserializer(), STRING.deserializer(), text(s, "topic"),
                "fill-" + id, () -> new Processors.Fill("shared-" + id));
            topology.addProcessor("look-" + id, () -> new Processors.Look("shared-" + id), "above-" + id);
            topology.connectProcessorAndStateStores("look-" + id, "shared-" + id);
            topology.addSink("sink-" + id, "out", STRING.serializer(), STRING.serializer(), "look-" + id);
        });
        return null;
    }

    private static StoreBuilder<?> shared(final JsonNode s, final String name) {
        switch (text(s, "kind")) {
            case "key-value": return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), STRING, STRING);
            case "timestamped": return Stores.timestampedKeyValueStoreBuilder(Stores.inMemoryKeyValueStore(name), STRING, STRING);
            case "lru": return Stores.keyValueStoreBuilder(Stores.lruMap(name, 2), STRING, STRING);
            default: throw new IllegalArgumentException("unknown kind of store " + text(s, "kind"));
        }
    }

    private static List<String> stores(final JsonNode s) {
        final List<String> names = new ArrayList<>();
        if (has(s, "stores")) for (final JsonNode each : s.get("stores")) names.add(each.asText());
        return names;
    }

    // Streams

    private Handle ofStream(final JsonNode s, final String op, final Handle a) {
        final KStream<Object, Object> it = a.it instanceof KStream ? a.stream() : null;
        switch (op) {
            case "KStream.filter": return a.with(it.filter(Functions.predicate(text(s, "predicate"))::test, named(s)));
            case "KStream.filterNot": return a.with(it.filterNot(Functions.predicate(text(s, "predicate"))::test, named(s)));
            case "KStream.selectKey": return a.rekeyed(it.selectKey(Functions.selector(text(s, "selector"))::apply, named(s)));
            case "KStream.map": {
                final Functions.Of2 selector = Functions.selector(text(s, "selector"));
                final Functions.Of1 mapper = Functions.mapper(text(s, "mapper"));
                return new Handle(it.map((k, v) -> KeyValue.pair(selector.apply(k, v), mapper.apply(v)), named(s)), STRING, STRING);
            }
            case "KStream.mapValues": {
                if (has(s, "keyed")) {
                    final Functions.Of2 keyed = Functions.keyed(text(s, "keyed"));
                    return a.strings(it.mapValues((ValueMapperWithKey<Object, Object, Object>) keyed::apply, named(s)));
                }
                final Functions.Of1 mapper = Functions.mapper(text(s, "mapper"));
                return a.strings(it.mapValues((ValueMapper<Object, Object>) mapper::apply, named(s)));
            }
            case "KStream.flatMap": {
                final Functions.Many flat = Functions.flat(text(s, "flat"));
                return new Handle(it.flatMap(flat::apply, named(s)), STRING, STRING);
            }
            case "KStream.flatMapValues": {
                final Functions.Many flat = Functions.flat(text(s, "flat"));
                if (has(s, "keyed"))
                    return a.strings(it.flatMapValues((ValueMapperWithKey<Object, Object, Iterable<Object>>) (k, v) -> Functions.values(flat, k, v), named(s)));
                return a.strings(it.flatMapValues((ValueMapper<Object, Iterable<Object>>) v -> Functions.values(flat, null, v), named(s)));
            }
            case "KStream.peek": return a.with(it.peek((k, v) -> effects.add(List.of(text(s, "id"), Functions.text(k), Functions.text(v))), named(s)));
            case "KStream.foreach":
                it.foreach((k, v) -> effects.add(List.of(text(s, "id"), Functions.text(k), Functions.text(v))), named(s));
                return null;
            case "KStream.split": return a.with(split(s, it));
            case "KStream.branch": {
                final List<KStream<Object, Object>> branches = Processors.cast(a.it);
                return a.with(branches.get(s.get("index").asInt()));
            }
            case "KStream.merge": return a.with(it.merge(of(s, 1).stream(), named(s)));
            case "KStream.repartition": {
                Repartitioned<Object, Object> r = Repartitioned.with(a.key, a.value);
                if (has(s, "name")) r = r.withName(name(s));
                if (has(s, "partitions")) r = r.withNumberOfPartitions(s.get("partitions").asInt());
                return a.with(it.repartition(r));
            }
            case "KStream.to": {
                Produced<Object, Object> p = Produced.with(a.key, a.value);
                if (has(s, "name")) p = p.withName(name(s));
                final String topic = text(s, "topic");
                if (has(s, "by")) {
                    final Functions.Test low = Functions.predicate(text(s, "by"));
                    it.to((k, v, context) -> topic + (low.test(k, v) ? "-yes" : "-no"), p);
                } else it.to(topic, p);
                return null;
            }
            case "KStream.toTable":
                return a.with(has(s, "store") ? it.toTable(named(s), keyValue(s, a.key, a.value)) : it.toTable(named(s)));
            case "KStream.groupByKey": return a.with(it.groupByKey(grouped(s, a.key, a.value)));
            case "KStream.groupBy": {
                final Functions.Of2 selector = Functions.selector(text(s, "selector"));
                return a.rekeyed(it.groupBy(selector::apply, grouped(s, STRING, a.value)));
            }
            case "KStream.process": {
                final String[] stores = stores(s).toArray(new String[0]);
                final String processor = text(s, "processor");
                return new Handle(has(s, "name") ? it.process(() -> new Processors.Any(processor, stores(s)), named(s), stores)
                    : it.process(() -> new Processors.Any(processor, stores(s)), stores), STRING, STRING);
            }
            case "KStream.processValues": {
                final String[] stores = stores(s).toArray(new String[0]);
                final String processor = text(s, "processor");
                return a.strings(has(s, "name") ? it.processValues(() -> new Processors.Fixed(processor, stores(s)), named(s), stores)
                    : it.processValues(() -> new Processors.Fixed(processor, stores(s)), stores));
            }
            default: return joined(s, op, a);
        }
    }

    private static Grouped<Object, Object> grouped(final JsonNode s, final Serde<Object> key, final Serde<Object> value) {
        final Grouped<Object, Object> g = Grouped.with(key, value);
        return has(s, "name") ? g.withName(name(s)) : g;
    }

    private static List<KStream<Object, Object>> split(final JsonNode s, final KStream<Object, Object> it) {
        BranchedKStream<Object, Object> b = has(s, "name") ? it.split(named(s)) : it.split();
        for (final JsonNode predicate : s.get("branches")) b = b.branch(Functions.predicate(predicate.asText())::test);
        final Map<String, KStream<Object, Object>> all = new TreeMap<>(s.get("default").asBoolean() ? b.defaultBranch() : b.noDefaultBranch());
        return new ArrayList<>(all.values());
    }

    private Handle joined(final JsonNode s, final String op, final Handle a) {
        final Handle b = of(s, 1);
        final boolean left = op.contains("left");
        final Functions.Of2 joiner = Functions.joiner(text(s, "joiner"));
        final ValueJoiner<Object, Object, Object> plain = joiner::apply;
        final ValueJoinerWithKey<Object, Object, Object, Object> keyed = (k, x, y) -> Functions.cap(Functions.text(k) + "=" + Functions.text(joiner.apply(x, y)));
        final boolean withKey = has(s, "keyed");
        switch (op) {
            case "KStream.joinTable": case "KStream.leftJoinTable": {
                Joined<Object, Object, Object> j = Joined.with(a.key, a.value, b.value);
                if (has(s, "name")) j = j.withName(name(s));
                if (has(s, "grace")) j = j.withGracePeriod(ms(s, "grace"));
                if (withKey) return a.strings(left ? a.stream().leftJoin(b.table(), keyed, j) : a.stream().join(b.table(), keyed, j));
                return a.strings(left ? a.stream().leftJoin(b.table(), plain, j) : a.stream().join(b.table(), plain, j));
            }
            case "KStream.joinGlobal": case "KStream.leftJoinGlobal": {
                final KeyValueMapper<Object, Object, Object> on = Functions.selector(text(s, "selector"))::apply;
                if (withKey) return a.strings(left ? a.stream().leftJoin(b.global(), on, keyed, named(s)) : a.stream().join(b.global(), on, keyed, named(s)));
                return a.strings(left ? a.stream().leftJoin(b.global(), on, plain, named(s)) : a.stream().join(b.global(), on, plain, named(s)));
            }
            case "KStream.join": case "KStream.leftJoin": case "KStream.outerJoin": {
                final JsonNode w = s.get("windows");
                final long before = w.get("before").asLong();
                final long after = w.get("after").asLong();
                final JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(Math.max(Math.abs(before), Math.abs(after))), ms(w, "grace"))
                    .before(Duration.ofMillis(before)).after(Duration.ofMillis(after));
                StreamJoined<Object, Object, Object> j = StreamJoined.with(a.key, a.value, b.value);
                if (has(s, "name")) j = j.withName(name(s));
                if (has(s, "store")) {
                    final JsonNode store = s.get("store");
                    if (has(store, "name")) j = j.withStoreName(name(store));
                    if (has(store, "logging") && !store.get("logging").asBoolean()) j = j.withLoggingDisabled();
                    if (has(store, "in_memory")) j = j.withDslStoreSuppliers(BuiltInDslStoreSuppliers.IN_MEMORY);
                    final Duration size = Duration.ofMillis(windows.size());
                    final Duration kept = size.plus(ms(w, "grace"));
                    if (has(store, "this_store")) j = j.withThisStoreSupplier(has(store, "in_memory")
                        ? Stores.inMemoryWindowStore(text(store, "this_store"), kept, size, true)
                        : Stores.persistentWindowStore(text(store, "this_store"), kept, size, true));
                    if (has(store, "other_store")) j = j.withOtherStoreSupplier(has(store, "in_memory")
                        ? Stores.inMemoryWindowStore(text(store, "other_store"), kept, size, true)
                        : Stores.persistentWindowStore(text(store, "other_store"), kept, size, true));
                }
                if (withKey) {
                    if (left) return a.strings(a.stream().leftJoin(b.stream(), keyed, windows, j));
                    return a.strings(op.contains("outer") ? a.stream().outerJoin(b.stream(), keyed, windows, j) : a.stream().join(b.stream(), keyed, windows, j));
                }
                if (left) return a.strings(a.stream().leftJoin(b.stream(), plain, windows, j));
                return a.strings(op.contains("outer") ? a.stream().outerJoin(b.stream(), plain, windows, j) : a.stream().join(b.stream(), plain, windows, j));
            }
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    // Tables

    private Handle ofTable(final JsonNode s, final String op, final Handle a) {
        final KTable<Object, Object> it = a.table();
        final boolean stored = has(s, "store");
        switch (op) {
            case "KTable.filter": {
                final Predicate<Object, Object> p = Functions.predicate(text(s, "predicate"))::test;
                return a.with(stored ? it.filter(p, named(s), keyValue(s, a.key, a.value)) : it.filter(p, named(s)));
            }
            case "KTable.filterNot": {
                final Predicate<Object, Object> p = Functions.predicate(text(s, "predicate"))::test;
                return a.with(stored ? it.filterNot(p, named(s), keyValue(s, a.key, a.value)) : it.filterNot(p, named(s)));
            }
            case "KTable.mapValues": {
                if (has(s, "keyed")) {
                    final ValueMapperWithKey<Object, Object, Object> m = Functions.keyed(text(s, "keyed"))::apply;
                    return a.strings(stored ? it.mapValues(m, named(s), keyValue(s, a.key, STRING)) : it.mapValues(m, named(s)));
                }
                final ValueMapper<Object, Object> m = Functions.mapper(text(s, "mapper"))::apply;
                return a.strings(stored ? it.mapValues(m, named(s), keyValue(s, a.key, STRING)) : it.mapValues(m, named(s)));
            }
            case "KTable.transformValues": {
                final String[] stores = stores(s).toArray(new String[0]);
                final ValueTransformerWithKeySupplier<Object, Object, Object> t = () -> new Processors.Transformer(text(s, "transformer"), stores(s));
                return a.strings(stored ? it.transformValues(t, keyValue(s, a.key, STRING), named(s), stores) : it.transformValues(t, named(s), stores));
            }
            case "KTable.toStream":
                if (has(s, "selector")) return a.rekeyed(it.toStream(Functions.selector(text(s, "selector"))::apply, named(s)));
                return a.with(it.toStream(named(s)));
            case "KTable.suppress": return a.with(it.suppress(suppressed(s)));
            case "KTable.groupBy": {
                final Functions.Of2 selector = Functions.selector(text(s, "selector"));
                if (!has(s, "mapper")) return a.rekeyed(it.groupBy((k, v) -> KeyValue.pair(selector.apply(k, v), v), grouped(s, STRING, a.value)));
                final Functions.Of1 mapper = Functions.mapper(text(s, "mapper"));
                return new Handle(it.groupBy((k, v) -> KeyValue.pair(selector.apply(k, v), mapper.apply(v)), grouped(s, STRING, STRING)), STRING, STRING);
            }
            case "KTable.join": case "KTable.leftJoin": case "KTable.outerJoin": {
                final KTable<Object, Object> other = of(s, 1).table();
                final ValueJoiner<Object, Object, Object> j = Functions.joiner(text(s, "joiner"))::apply;
                if (op.contains("left")) return a.strings(stored ? it.leftJoin(other, j, named(s), keyValue(s, a.key, STRING)) : it.leftJoin(other, j, named(s)));
                if (op.contains("outer")) return a.strings(stored ? it.outerJoin(other, j, named(s), keyValue(s, a.key, STRING)) : it.outerJoin(other, j, named(s)));
                return a.strings(stored ? it.join(other, j, named(s), keyValue(s, a.key, STRING)) : it.join(other, j, named(s)));
            }
            case "KTable.joinForeign": case "KTable.leftJoinForeign": return foreign(s, a, op.contains("left"));
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    private Handle foreign(final JsonNode s, final Handle a, final boolean left) {
        final KTable<Object, Object> it = a.table();
        final KTable<Object, Object> other = of(s, 1).table();
        final ValueJoiner<Object, Object, Object> j = Functions.joiner(text(s, "joiner"))::apply;
        TableJoined<Object, Object> named = has(s, "partitioned")
            ? TableJoined.with((topic, k, v, n) -> Optional.of(Set.of((Functions.text(k).length() + (v == null ? 0 : 1)) % n)), (topic, k, v, n) -> Optional.empty())
            : TableJoined.with(null, null);
        if (has(s, "name")) named = named.withName(name(s));
        // Serdes of the keys and of the left values come from the tables, as there is no option for them.
        if (has(s, "keyed")) {
            final java.util.function.BiFunction<Object, Object, Object> on = Functions.foreignKeyed(text(s, "keyed"))::apply;
            if (has(s, "store")) return a.strings(left ? it.leftJoin(other, on, j, named, keyValue(s, a.key, STRING)) : it.join(other, on, j, named, keyValue(s, a.key, STRING)));
            return a.strings(left ? it.leftJoin(other, on, j, named) : it.join(other, on, j, named));
        }
        final java.util.function.Function<Object, Object> on = Functions.foreign(text(s, "foreign"))::apply;
        if (has(s, "store")) return a.strings(left ? it.leftJoin(other, on, j, named, keyValue(s, a.key, STRING)) : it.join(other, on, j, named, keyValue(s, a.key, STRING)));
        return a.strings(left ? it.leftJoin(other, on, j, named) : it.join(other, on, j, named));
    }

    private static Suppressed<Object> suppressed(final JsonNode s) {
        Suppressed.EagerBufferConfig eager = null;
        if (has(s, "records")) eager = Suppressed.BufferConfig.maxRecords(s.get("records").asLong());
        if (has(s, "bytes")) eager = eager == null ? Suppressed.BufferConfig.maxBytes(s.get("bytes").asLong()) : eager.withMaxBytes(s.get("bytes").asLong());
        Suppressed.StrictBufferConfig strict = eager == null ? Suppressed.BufferConfig.unbounded() : eager.shutDownWhenFull();
        if (eager != null && has(s, "logging")) eager = eager.withLoggingDisabled();
        if (has(s, "logging")) strict = strict.withLoggingDisabled();
        final Suppressed<Object> made;
        if ("close".equals(text(s, "until"))) made = Processors.cast(Suppressed.untilWindowCloses(strict));
        else made = Suppressed.untilTimeLimit(ms(s, "limit"), eager != null && "emit".equals(text(s, "full")) ? eager : strict);
        return has(s, "name") ? Processors.cast(made.withName(name(s))) : made;
    }

    // Aggregations

    private Handle ofGrouped(final JsonNode s, final String op, final Handle a) {
        final KGroupedStream<Object, Object> it = a.grouped();
        switch (op) {
            case "KGroupedStream.count": {
                if (has(s, "store")) {
                    final Object table = it.count(named(s), Processors.cast(keyValue(s, a.key, LONG)));
                    return new Handle(has(s.get("store"), "name") || has(s, "name") ? table : table, a.key, LONG, a.plain);
                }
                return new Handle(it.count(named(s)), a.key, LONG, a.plain);
            }
            case "KGroupedStream.reduce": {
                if (has(s, "store")) return a.with(it.reduce(reducer(s, "reducer"), named(s), keyValue(s, a.key, a.value)));
                if (has(s, "name")) return a.with(it.reduce(reducer(s, "reducer"), named(s), Materialized.with(a.key, a.value)));
                return a.with(it.reduce(reducer(s, "reducer")));
            }
            case "KGroupedStream.aggregate": {
                if (has(s, "store")) return a.strings(it.aggregate(initializer(s), aggregator(s, "aggregator"), named(s), keyValue(s, a.key, STRING)));
                if (has(s, "name")) return a.strings(it.aggregate(initializer(s), aggregator(s, "aggregator"), named(s), Materialized.with(a.key, STRING)));
                return a.strings(it.aggregate(initializer(s), aggregator(s, "aggregator")));
            }
            case "KGroupedStream.windowedBy": return windowed(s, a, it, null);
            case "KGroupedStream.cogroup": return a.strings(it.cogroup(aggregator(s, "aggregator")));
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    private static Handle windowed(final JsonNode s, final Handle a, final KGroupedStream<Object, Object> it, final CogroupedKStream<Object, Object> c) {
        final JsonNode w = s.get("windows");
        switch (text(w, "type")) {
            case "time": {
                final TimeWindows windows = TimeWindows.ofSizeAndGrace(ms(w, "size"), ms(w, "grace")).advanceBy(ms(w, "advance"));
                return new Handle(c == null ? it.windowedBy(windows) : c.windowedBy(windows), timed(a.key, w.get("size").asLong()), a.value, a.key);
            }
            case "unlimited": {
                final UnlimitedWindows windows = UnlimitedWindows.of().startOn(Instant.ofEpochMilli(w.get("start").asLong()));
                return new Handle(c == null ? it.windowedBy(windows) : c.windowedBy(windows), timed(a.key, Long.MAX_VALUE), a.value, a.key);
            }
            case "sliding": {
                final SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(ms(w, "difference"), ms(w, "grace"));
                return new Handle(c == null ? it.windowedBy(windows) : c.windowedBy(windows), timed(a.key, w.get("difference").asLong()), a.value, a.key);
            }
            case "session": {
                final SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(ms(w, "gap"), ms(w, "grace"));
                return new Handle(c == null ? it.windowedBy(windows) : c.windowedBy(windows), Processors.cast(new WindowedSerdes.SessionWindowedSerde<>(a.key)), a.value, a.key);
            }
            default: throw new IllegalArgumentException("unknown windows " + w);
        }
    }

    private static Serde<Object> timed(final Serde<Object> key, final long size) {
        return Processors.cast(new WindowedSerdes.TimeWindowedSerde<>(key, size));
    }

    private static EmitStrategy emit(final JsonNode s) {
        return "close".equals(text(s, "emit")) ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
    }

    private Handle ofWindowed(final JsonNode s, final String op, final Handle a) {
        final TimeWindowedKStream<Object, Object> it = a.windowed();
        final boolean stored = has(s, "store");
        switch (op) {
            case "TimeWindowedKStream.emitStrategy": return a.with(it.emitStrategy(emit(s)));
            case "TimeWindowedKStream.count":
                return new Handle(stored ? it.count(named(s), Processors.cast(windows(s, a.plain, LONG))) : it.count(named(s)), a.key, LONG, a.plain);
            case "TimeWindowedKStream.reduce":
                return a.with(stored ? it.reduce(reducer(s, "reducer"), named(s), windows(s, a.plain, a.value)) : it.reduce(reducer(s, "reducer"), named(s)));
            case "TimeWindowedKStream.aggregate":
                return a.strings(stored ? it.aggregate(initializer(s), aggregator(s, "aggregator"), named(s), windows(s, a.plain, STRING))
                    : it.aggregate(initializer(s), aggregator(s, "aggregator"), named(s)));
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    private Handle ofSessions(final JsonNode s, final String op, final Handle a) {
        final SessionWindowedKStream<Object, Object> it = a.sessions();
        final boolean stored = has(s, "store");
        switch (op) {
            case "SessionWindowedKStream.emitStrategy": return a.with(it.emitStrategy(emit(s)));
            case "SessionWindowedKStream.count":
                return new Handle(stored ? it.count(named(s), Processors.cast(sessions(s, a.plain, LONG))) : it.count(named(s)), a.key, LONG, a.plain);
            case "SessionWindowedKStream.reduce":
                return a.with(stored ? it.reduce(reducer(s, "reducer"), named(s), sessions(s, a.plain, a.value)) : it.reduce(reducer(s, "reducer"), named(s)));
            case "SessionWindowedKStream.aggregate": {
                final Merger<Object, Object> merger = Functions.aggregator(text(s, "merger"))::apply;
                return a.strings(stored ? it.aggregate(initializer(s), aggregator(s, "aggregator"), merger, named(s), sessions(s, a.plain, STRING))
                    : it.aggregate(initializer(s), aggregator(s, "aggregator"), merger, named(s)));
            }
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    private Handle ofCogrouped(final JsonNode s, final String op, final Handle a) {
        final boolean stored = has(s, "store");
        switch (op) {
            case "CogroupedKStream.cogroup": return a.with(a.cogrouped().cogroup(of(s, 1).grouped(), aggregator(s, "aggregator")));
            case "CogroupedKStream.windowedBy": return windowed(s, a, null, a.cogrouped());
            case "CogroupedKStream.aggregate":
                return a.strings(stored ? a.cogrouped().aggregate(initializer(s), named(s), keyValue(s, a.key, STRING)) : a.cogrouped().aggregate(initializer(s), named(s)));
            case "TimeWindowedCogroupedKStream.aggregate":
                return a.strings(stored ? a.windowedCogrouped().aggregate(initializer(s), named(s), windows(s, a.plain, STRING))
                    : a.windowedCogrouped().aggregate(initializer(s), named(s)));
            case "SessionWindowedCogroupedKStream.aggregate": {
                final Merger<Object, Object> merger = Functions.aggregator(text(s, "merger"))::apply;
                return a.strings(stored ? a.sessionsCogrouped().aggregate(initializer(s), merger, named(s), sessions(s, a.plain, STRING))
                    : a.sessionsCogrouped().aggregate(initializer(s), merger, named(s)));
            }
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }

    private Handle ofGroupedTable(final JsonNode s, final String op, final Handle a) {
        final KGroupedTable<Object, Object> it = a.groupedTable();
        final boolean stored = has(s, "store");
        switch (op) {
            case "KGroupedTable.count":
                return new Handle(stored ? it.count(named(s), Processors.cast(keyValue(s, a.key, LONG))) : it.count(named(s)), a.key, LONG);
            case "KGroupedTable.reduce": {
                if (stored) return a.with(it.reduce(reducer(s, "adder"), reducer(s, "subtractor"), named(s), keyValue(s, a.key, a.value)));
                if (has(s, "name")) return a.with(it.reduce(reducer(s, "adder"), reducer(s, "subtractor"), named(s), Materialized.with(a.key, a.value)));
                return a.with(it.reduce(reducer(s, "adder"), reducer(s, "subtractor")));
            }
            case "KGroupedTable.aggregate":
                return a.strings(stored ? it.aggregate(initializer(s), aggregator(s, "adder"), aggregator(s, "subtractor"), named(s), keyValue(s, a.key, STRING))
                    : it.aggregate(initializer(s), aggregator(s, "adder"), aggregator(s, "subtractor"), named(s)));
            default: throw new IllegalArgumentException("unknown operator " + op);
        }
    }
}
