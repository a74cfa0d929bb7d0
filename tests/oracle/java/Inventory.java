// Writes what Kafka Streams offers: every public class of its public packages with its members, and every setting.
// Everything is read from the jars by reflection, so that nothing is forgotten.

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.streams.StreamsConfig;

public final class Inventory {
    private static final Set<String> OF_EVERY_OBJECT = Set.of("equals", "hashCode", "toString", "values", "valueOf", "compareTo");

    private Inventory() {}

    public static void main(final String[] args) throws Exception {
        final Set<String> lines = new TreeSet<>();
        for (final String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (new File(path).getName().startsWith("kafka-streams")) {
                for (final Class<?> each : classesOf(path)) {
                    describe(each, lines);
                }
            }
        }
        for (final ConfigDef.ConfigKey key : StreamsConfig.configDef().configKeys().values()) {
            if (!key.internalConfig) {
                lines.add("setting\tStreamsConfig\t" + key.name + "\t" + shown(key.defaultValue));
            }
        }
        final Path directory = Path.of(args[1]);
        Files.createDirectories(directory);
        Files.write(directory.resolve("inventory.txt"), lines);
    }

    private static List<Class<?>> classesOf(final String path) throws IOException, ClassNotFoundException {
        final List<Class<?>> found = new ArrayList<>();
        try (JarFile jar = new JarFile(path)) {
            for (final JarEntry entry : java.util.Collections.list(jar.entries())) {
                final String name = entry.getName();
                if (name.startsWith("org/apache/kafka/streams/") && name.endsWith(".class") && !name.contains("/internals/")) {
                    final Class<?> each = Class.forName(name.replace(".class", "").replace('/', '.'), false, Inventory.class.getClassLoader());
                    if (isPublic(each)) {
                        found.add(each);
                    }
                }
            }
        }
        return found;
    }

    private static boolean isPublic(final Class<?> each) {
        return !each.isAnonymousClass() && !each.isLocalClass() && Modifier.isPublic(each.getModifiers())
            && (each.getEnclosingClass() == null || isPublic(each.getEnclosingClass()));
    }

    private static void describe(final Class<?> each, final Collection<String> lines) {
        final String owner = nameOf(each);
        final String kind = each.isEnum() ? "enum" : each.isInterface() ? "interface" : "class";
        lines.add(String.join("\t", kind, owner, each.getPackageName() + deprecated(each.isAnnotationPresent(Deprecated.class))));
        for (final Constructor<?> made : each.getDeclaredConstructors()) {
            if (Modifier.isPublic(made.getModifiers()) && !made.isSynthetic()) {
                lines.add(member("new", owner, "new", made.getParameterTypes(), made.isAnnotationPresent(Deprecated.class)));
            }
        }
        for (final Method method : each.getDeclaredMethods()) {
            if (Modifier.isPublic(method.getModifiers()) && !method.isSynthetic() && !OF_EVERY_OBJECT.contains(method.getName())) {
                lines.add(member("method", owner, method.getName(), method.getParameterTypes(), method.isAnnotationPresent(Deprecated.class)));
            }
        }
        for (final Field field : each.getDeclaredFields()) {
            // The constants of StreamsConfig are the names of settings and of their values.
            if (Modifier.isPublic(field.getModifiers()) && !field.isSynthetic() && each != StreamsConfig.class) {
                lines.add(String.join("\t", "constant", owner, field.getName() + deprecated(field.isAnnotationPresent(Deprecated.class))));
            }
        }
    }

    private static String member(final String kind, final String owner, final String name, final Class<?>[] types, final boolean old) {
        final String parameters = Arrays.stream(types).map(Inventory::nameOf).collect(Collectors.joining(", "));
        return String.join("\t", kind, owner, name + "(" + parameters + ")" + deprecated(old));
    }

    private static String nameOf(final Class<?> type) {
        if (type.getName().startsWith("[")) {
            return nameOf(type.getComponentType()) + "[]";
        }
        final String name = type.getName().substring(type.getName().lastIndexOf('.') + 1).replace('$', '.');
        // Two classes have older namesakes.
        final boolean older = type.getPackageName().equals("org.apache.kafka.streams.processor") && name.matches("(Mock)?ProcessorContext.*");
        return older ? "processor." + name : name;
    }

    private static String deprecated(final boolean is) {
        return is ? "\tdeprecated" : "";
    }

    private static String shown(final Object value) {
        if (value == ConfigDef.NO_DEFAULT_VALUE) {
            return "required";
        }
        if (value instanceof Class<?> type) {
            return nameOf(type);
        }
        return String.valueOf(value).replaceAll(".*[.$](?=[A-Z]\\w*$)", "");
    }
}
