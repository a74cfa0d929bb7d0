// The Kafka Streams side of the failover bench: the same topology as bench/failover/app.py, one stream thread.
// Arguments are name=value pairs. SIGTERM: the instance commits, leaves its group at once, and ends. What it holds is written to
// the file `status` a few times a second, for the harness, which has no other way to see where standbys are.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

public final class KafkaStreamsFailover {
    private static final Serde<String> TEXT = Serdes.String();
    private static final String STORE = "counts";
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final long STATUS_EVERY_MS = 200;

    private KafkaStreamsFailover() {}

    public static void main(final String[] args) throws InterruptedException {
        final Map<String, String> options = options(args);
        final KafkaStreams streams = new KafkaStreams(topology(options), properties(options));
        final CountDownLatch stopped = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            stopped.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(PATIENCE);
            stopped.countDown();
        }));
        streams.start();
        final Path status = Path.of(options.get("status"));
        while (stopped.getCount() > 0) {
            write(status, holdings(streams));
            Thread.sleep(STATUS_EVERY_MS);
        }
    }

    private static Topology topology(final Map<String, String> options) {
        final String owner = options.get("owner");
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream(options.get("input"), Consumed.with(TEXT, TEXT))
            .groupByKey(Grouped.with(TEXT, TEXT))
            .aggregate(
                () -> "",
                (key, record, before) -> result(record, before, owner),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(STORE)
                    .withKeySerde(TEXT).withValueSerde(TEXT).withCachingDisabled())
            .toStream()
            .to(options.get("output"), Produced.with(TEXT, TEXT));
        return builder.build();
    }

    /** As `result` of bench/failover/records.py. */
    private static String result(final String record, final String before, final String owner) {
        final long count = before.isEmpty() ? 1 : Long.parseLong(before.substring(0, before.indexOf(' '))) + 1;
        final long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        return count + " " + record + " " + now + " " + owner;
    }

    private static Properties properties(final Map<String, String> options) {
        final Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("application"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state"));
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, options.get("commit_ms"));
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        // The lowest it may be.
        properties.put(StreamsConfig.PROBING_REBALANCE_INTERVAL_MS_CONFIG, 60_000L);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        final int session = Integer.parseInt(options.get("session_ms"));
        properties.put(StreamsConfig.mainConsumerPrefix("session.timeout.ms"), session);
        // Members learn of a rebalance from the answer to a heartbeat: far more often than by default (3 s), in its favour.
        properties.put(StreamsConfig.mainConsumerPrefix("heartbeat.interval.ms"), 500);
        // Without this an instance that closes stays in the group until its session times out. removeStreamThread() should
        // leave at once too, but does not in 4.1.0.
        properties.put(StreamsConfig.mainConsumerPrefix("internal.leave.group.on.close"), true);
        // A dead instance's open transaction blocks its successors until it times out.
        properties.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), options.get("transaction_ms"));
        return properties;
    }

    /** `state|partitions of active tasks|partition:lag of standbys`, the lag -1 where it is not known. */
    private static String holdings(final KafkaStreams streams) {
        final Map<Integer, LagInfo> lags = lags(streams);
        String active = "";
        String standby = "";
        for (final ThreadMetadata thread : streams.metadataForLocalThreads()) {
            active = partitions(thread.activeTasks()).map(String::valueOf).collect(Collectors.joining(","));
            standby = partitions(thread.standbyTasks())
                .map(partition -> partition + ":" + (lags.containsKey(partition) ? lags.get(partition).offsetLag() : -1))
                .collect(Collectors.joining(","));
        }
        return streams.state() + "|" + active + "|" + standby;
    }

    private static Map<Integer, LagInfo> lags(final KafkaStreams streams) {
        try {
            return streams.allLocalStorePartitionLags().getOrDefault(STORE, Map.of());
        } catch (final RuntimeException error) {
            return Map.of(); // not known while it starts, stops or moves its tasks
        }
    }

    private static Stream<Integer> partitions(final Set<TaskMetadata> tasks) {
        return tasks.stream().map(task -> task.taskId().partition());
    }

    private static void write(final Path status, final String text) {
        try {
            final Path aside = status.resolveSibling(status.getFileName() + ".new");
            Files.writeString(aside, text);
            Files.move(aside, status, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
        } catch (final IOException error) {
            error.printStackTrace();
        }
    }

    private static Map<String, String> options(final String[] args) {
        final Map<String, String> options = new HashMap<>();
        for (final String arg : args) {
            final int equals = arg.indexOf('=');
            options.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
        return options;
    }
}
