import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;

/**
 * Takes all partitions off one broker, or gives each partition back to all brokers: the client in Python cannot.
 * Ends when no reassignment is left. Arguments: bootstrap servers, then the broker to empty, or "back" and its id.
 */
public final class Reassign {
    public static void main(String[] arguments) throws Exception {
        boolean back = arguments[1].equals("back");
        int broker = Integer.parseInt(arguments[back ? 2 : 1]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            Set<String> topics = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
            admin.describeTopics(topics).allTopicNames().get().forEach((name, topic) -> {
                for (TopicPartitionInfo each : topic.partitions()) {
                    List<Integer> replicas = new ArrayList<>(each.replicas().stream().map(node -> node.id()).toList());
                    replicas.remove((Integer) broker);
                    if (back) {
                        // It becomes the first replica of a third of the partitions: their leader moves to it.
                        replicas.add(each.partition() % 3 == 0 ? 0 : replicas.size(), broker);
                    }
                    wanted.put(new TopicPartition(name, each.partition()), Optional.of(new NewPartitionReassignment(replicas)));
                }
            });
            admin.alterPartitionReassignments(wanted).all().get();
            while (!admin.listPartitionReassignments().reassignments().get().isEmpty()) {
                Thread.sleep(50);
            }
            if (back) {
                admin.electLeaders(ElectionType.PREFERRED, null).partitions().get();
            }
        }
    }
}
