import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.internals.*;

/**
 * Prints what Kafka's own serializers write, one line per case: serde, value as text, bytes in hex.
 * The output is checked in as golden.tsv; values are written so that Python reads them by one rule per serde.
 */
public class GoldenSerdes {
    static final String TOPIC = "golden";

    public static void main(final String[] args) {
        for (final String text : new String[] {"", "a", "Zürich", "日本", "😀 emoji", "x".repeat(80)}) {
            print("String", text, new StringSerializer().serialize(TOPIC, text));
        }
        for (final short number : new short[] {0, 1, -1, Short.MIN_VALUE, Short.MAX_VALUE}) {
            print("Short", number, new ShortSerializer().serialize(TOPIC, number));
        }
        for (final int number : new int[] {0, 1, -1, 300, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            print("Int", number, new IntegerSerializer().serialize(TOPIC, number));
        }
        for (final long number : new long[] {0, 1, -1, 1L << 40, Long.MIN_VALUE, Long.MAX_VALUE}) {
            print("Long", number, new LongSerializer().serialize(TOPIC, number));
        }
        for (final float number : new float[] {0f, -0f, 1.5f, -2.25f, Float.MIN_VALUE, Float.MAX_VALUE, Float.POSITIVE_INFINITY}) {
            print("Float", (double) number, new FloatSerializer().serialize(TOPIC, number));
        }
        for (final double number : new double[] {0, -0d, 0.1, -2.25, Double.MIN_VALUE, Double.MAX_VALUE, Double.NEGATIVE_INFINITY}) {
            print("Double", number, new DoubleSerializer().serialize(TOPIC, number));
        }
        for (final boolean truth : new boolean[] {true, false}) {
            print("Boolean", truth, new BooleanSerializer().serialize(TOPIC, truth));
        }
        for (final UUID id : new UUID[] {new UUID(0, 0), new UUID(-1, -1), new UUID(0x0123456789abcdefL, 0xfedcba9876543210L)}) {
            print("UUID", id, new UUIDSerializer().serialize(TOPIC, id));
        }
        for (final byte[] bytes : new byte[][] {{}, {0}, {-1, 0, 127, -128}}) {
            print("Bytes", hex(bytes), new ByteArraySerializer().serialize(TOPIC, bytes));
        }
        for (final byte[] bytes : new byte[][] {{}, {0}, {-1, 0, 127, -128}}) {
            print("ByteBuffer", hex(bytes), new ByteBufferSerializer().serialize(TOPIC, ByteBuffer.wrap(bytes)));
        }
        windowed();
        changes();
        lists();
    }

    static void lists() {
        final UUID id = new UUID(0x0123456789abcdefL, 0xfedcba9876543210L);
        list("Short", Serdes.Short(), (short) 1, null, Short.MIN_VALUE);
        list("Int", Serdes.Integer(), null, 7, null, -1);
        list("Long", Serdes.Long(), 1L, Long.MIN_VALUE);
        list("Float", Serdes.Float(), 1.5f, null);
        list("Double", Serdes.Double(), null, -2.25);
        list("UUID", Serdes.UUID(), id, null);
        list("Boolean", Serdes.Boolean(), true, null, false);
        list("String", Serdes.String(), "", "日本", null, "a");
        list("Bytes", Serdes.ByteArray(), new byte[0], null, new byte[] {0, -1});
        list("ByteBuffer", Serdes.ByteBuffer(), ByteBuffer.wrap(new byte[] {1}), null);
        final var inner = Serdes.ListSerde(ArrayList.class, Serdes.Integer());
        print("List(List(Int))", "1,null;;null", Serdes.ListSerde(ArrayList.class, inner).serializer().serialize(
            TOPIC, Arrays.asList(Arrays.asList(1, null), List.of(), null)));
    }

    /** The first 0, 1, … entries as a list, and all of them reversed. */
    @SafeVarargs
    static <T> void list(final String name, final Serde<T> inner, final T... entries) {
        final var serializer = Serdes.ListSerde(ArrayList.class, inner).serializer();
        for (int count = 0; count <= entries.length; count++) {
            final List<T> first = Arrays.asList(entries).subList(0, count);
            final String shown = String.join(",", first.stream().map(GoldenSerdes::entry).toList());
            print("List(" + name + ")", count + ":" + shown, serializer.serialize(TOPIC, first));
        }
    }

    static String entry(final Object entry) {
        if (entry instanceof final byte[] bytes) {
            return hex(bytes);
        }
        return entry instanceof final ByteBuffer buffer ? hex(buffer.array()) : String.valueOf(entry);
    }

    static void windowed() {
        final var time = new TimeWindowedSerializer<>(new StringSerializer());
        final var session = new SessionWindowedSerializer<>(new StringSerializer());
        final long[][] spans = {{0, 5000}, {1700000000000L, 1700000005000L}};
        for (final String key : new String[] {"", "k", "日本"}) {
            for (final long[] span : spans) {
                final String shown = key + "|" + span[0] + "|" + span[1];
                print("TimeWindowed", shown, time.serialize(TOPIC, new Windowed<>(key, new TimeWindow(span[0], span[1]))));
                print("SessionWindowed", shown, session.serialize(TOPIC, new Windowed<>(key, new SessionWindow(span[0], span[1]))));
            }
        }
    }

    static void changes() {
        final var change = new ChangedSerializer<>(new StringSerializer());
        change.configure(Map.of(), false);
        final String[] texts = {null, "", "a", "n".repeat(63), "n".repeat(64), "n".repeat(8191), "n".repeat(8192)};
        for (final String fresh : texts) {
            for (final String old : new String[] {null, "", "o"}) {
                if (fresh != null || old != null) {
                    print("Change", shown(fresh) + "|" + shown(old), change.serialize(TOPIC, new Change<>(fresh, old)));
                }
            }
        }
    }

    static String shown(final String text) {
        return text == null ? "null" : text.isEmpty() ? "" : text.charAt(0) + "*" + text.length();
    }

    /** Long bytes are shown as their ends and their length. */
    static void print(final String serde, final Object value, final byte[] bytes) {
        final String all = hex(bytes);
        final String shown = bytes.length <= 80 ? all : all.substring(0, 16) + ".." + bytes.length + ".." + all.substring(all.length() - 16);
        System.out.println(serde + "\t" + value + "\t" + shown);
    }

    static String hex(final byte[] bytes) {
        return java.util.HexFormat.of().formatHex(bytes);
    }
}
