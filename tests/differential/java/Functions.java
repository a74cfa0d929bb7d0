import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;

/** The user functions of a case, by name. The same functions are in ours/functions.py. A name may have an argument: "append:x". */
final class Functions {
    private static final int LONGEST = 40;

    private Functions() { }

    interface Of1 { Object apply(Object v); }
    interface Of2 { Object apply(Object a, Object b); }
    interface Of3 { Object apply(Object a, Object b, Object c); }
    interface Test { boolean test(Object k, Object v); }
    interface Many { List<KeyValue<Object, Object>> apply(Object k, Object v); }

    /** The text of a key or value: of a window its key and both times. */
    static String text(final Object it) {
        if (it instanceof Windowed) {
            final Windowed<?> w = (Windowed<?>) it;
            return text(w.key()) + "@" + w.window().start() + "/" + w.window().end();
        }
        return String.valueOf(it);
    }

    /** The last characters of a text, so that values do not grow without end. */
    static String cap(final String text) {
        return text.length() <= LONGEST ? text : text.substring(text.length() - LONGEST);
    }

    private static String kind(final String name) { return name.contains(":") ? name.substring(0, name.indexOf(':')) : name; }
    private static String argument(final String name) { return name.substring(name.indexOf(':') + 1); }
    private static char last(final String text) { return text.isEmpty() ? '0' : text.charAt(text.length() - 1); }
    private static String letter(final Object v) { return v == null ? null : text(v).isEmpty() ? "" : text(v).substring(0, 1); }
    private static boolean low(final Object v) { return v != null && last(text(v)) < '5'; }
    private static RuntimeException unknown(final String family, final String name) {
        return new IllegalArgumentException("there is no " + family + " called " + name);
    }

    static Test predicate(final String name) {
        switch (kind(name)) {
            case "all": return (k, v) -> true;
            case "none": return (k, v) -> false;
            case "low": return (k, v) -> low(v);
            case "not-null": return (k, v) -> v != null;
            case "starts": return (k, v) -> text(v).startsWith(argument(name));
            case "has-key": return (k, v) -> k != null;
            case "key-odd": return (k, v) -> last(text(k)) % 2 == 1;
            default: throw unknown("predicate", name);
        }
    }

    static Of1 mapper(final String name) {
        switch (kind(name)) {
            case "upper": return v -> v == null ? null : text(v).toUpperCase();
            case "append": return v -> cap(text(v) + argument(name));
            case "null-if": return v -> text(v).startsWith(argument(name)) ? null : text(v);
            case "letter": return v -> letter(v);
            case "fixed": return v -> argument(name);
            default: throw unknown("mapper", name);
        }
    }

    /** A mapper of values that is given the key, too. */
    static Of2 keyed(final String name) {
        switch (kind(name)) {
            case "glue": return (k, v) -> cap(text(k) + "=" + text(v));
            case "null-if-odd": return (k, v) -> last(text(k)) % 2 == 1 ? null : text(v);
            default: throw unknown("mapper with a key", name);
        }
    }

    /** A new key. */
    static Of2 selector(final String name) {
        switch (kind(name)) {
            case "key": return (k, v) -> k == null ? null : text(k);
            case "letter": return (k, v) -> letter(v);
            case "digit": return (k, v) -> "k" + last(text(v));
            case "null-if-low": return (k, v) -> low(v) || k == null ? null : text(k);
            case "part": return (k, v) -> k == null ? null : text(k).split("@")[0];
            case "fixed": return (k, v) -> argument(name);
            default: throw unknown("selector", name);
        }
    }

    static Many flat(final String name) {
        switch (kind(name)) {
            case "none-if-low": return (k, v) -> low(v) ? List.of() : List.of(pair(k, v));
            case "twice": return (k, v) -> List.of(pair(k, v), pair(k, text(v) + "!"));
            case "swapped": return (k, v) -> List.of(pair(text(v), text(k)), pair(k, v));
            default: throw unknown("flat mapper", name);
        }
    }

    private static KeyValue<Object, Object> pair(final Object k, final Object v) {
        return KeyValue.pair(k == null ? null : text(k), v == null ? null : cap(text(v)));
    }

    static Iterable<Object> values(final Many many, final Object k, final Object v) {
        final List<Object> found = new ArrayList<>();
        for (final KeyValue<Object, Object> each : many.apply(k, v)) found.add(each.value);
        return found;
    }

    /** The value of a join, of both values. */
    static Of2 joiner(final String name) {
        switch (kind(name)) {
            case "glue": return (a, b) -> cap(text(a) + "|" + text(b));
            case "left": return (a, b) -> a == null ? null : text(a);
            case "right": return (a, b) -> b == null ? null : text(b);
            case "null-if-low": return (a, b) -> low(b) ? null : cap(text(a) + "|" + text(b));
            default: throw unknown("joiner", name);
        }
    }

    /** A new aggregate, of the one so far and a value. */
    static Of2 reducer(final String name) {
        switch (kind(name)) {
            case "plus": return (a, b) -> cap(text(a) + "+" + text(b));
            case "minus": return (a, b) -> cap(text(a) + "-" + text(b));
            case "last": return (a, b) -> b == null ? "n0" : text(b);
            case "null-if-low": return (a, b) -> low(b) ? null : cap(text(a) + "+" + text(b));
            case "sum": return (a, b) -> (Long) a + (Long) b;
            case "difference": return (a, b) -> (Long) a - (Long) b;
            default: throw unknown("reducer", name);
        }
    }

    /** A new aggregate, of key, value and the one so far. */
    static Of3 aggregator(final String name) {
        switch (kind(name)) {
            case "plus": return (k, v, a) -> cap(text(a) + "+" + text(v));
            case "minus": return (k, v, a) -> cap(text(a) + "-" + text(v));
            case "with-key": return (k, v, a) -> cap(text(a) + "," + text(k) + text(v));
            case "null-if-low": return (k, v, a) -> low(v) ? null : cap(text(a) + "+" + text(v));
            default: throw unknown("aggregator", name);
        }
    }

    static Object initial(final String name) { return "null".equals(name) ? null : name; }

    /** A key of another table, of a value. */
    static Of1 foreign(final String name) {
        switch (kind(name)) {
            case "letter": return v -> letter(v);
            case "digit": return v -> "k" + last(text(v));
            case "null-if-low": return v -> low(v) ? null : "k" + last(text(v));
            default: throw unknown("foreign-key extractor", name);
        }
    }

    /** A key of another table, of key and value. */
    static Of2 foreignKeyed(final String name) {
        switch (kind(name)) {
            case "digit": return (k, v) -> "k" + last(text(v));
            case "key-or-digit": return (k, v) -> low(v) ? text(k) : "k" + last(text(v));
            default: throw unknown("foreign-key extractor with a key", name);
        }
    }
}
