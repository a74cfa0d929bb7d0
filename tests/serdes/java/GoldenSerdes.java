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
        windowed();
        changes();
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
