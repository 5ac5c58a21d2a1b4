package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics, configs, offsets and groups. */
final class Administration {
    private final Admin admin;

    Administration(String bootstrap) {
        admin = Admin.create(Login.settings(bootstrap));
    }

    void addTo(Map<String, Verb> verbs) {
        verbs.put("topics", args -> admin.listTopics().names().get());
        verbs.put("partitions", args -> admin.describeTopics(List.of(topic(args))).allTopicNames().get().get(topic(args)).partitions().size());
        verbs.put("create_topic", this::createTopic);
        verbs.put("delete_topic", args -> admin.deleteTopics(List.of(topic(args))).all().get());
        verbs.put("add_partitions", args -> admin.createPartitions(
                Map.of(topic(args), NewPartitions.increaseTo(args.get("total").asInt()))).all().get());
        verbs.put("topic_configs", this::topicConfigs);
        verbs.put("set_topic_config", this::setTopicConfig);
        verbs.put("delete_records", args -> admin.deleteRecords(
                Map.of(Values.partition(args), RecordsToDelete.beforeOffset(args.get("before").asLong()))).all().get());
        verbs.put("bounds", args -> List.of(offset(args, OffsetSpec.earliest()), offset(args, OffsetSpec.latest())));
        verbs.put("brokers", args -> admin.describeCluster().nodes().get().size());
        verbs.put("groups", args -> admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get()
                .stream().map(GroupListing::groupId).collect(Collectors.toList()));
        verbs.put("describe_group", this::describeGroup);
        verbs.put("delete_group", args -> admin.deleteConsumerGroups(List.of(group(args))).all().get());
        verbs.put("group_offsets", this::groupOffsets);
        verbs.put("set_group_offsets", this::setGroupOffsets);
        verbs.put("delete_group_offsets", this::deleteGroupOffsets);
    }

    private Object createTopic(JsonNode args) throws Exception {
        Map<String, String> configs = new HashMap<>();
        args.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(topic(args), args.get("partitions").asInt(), (short) 1).configs(configs);
        return admin.createTopics(List.of(topic)).all().get();
    }

    private Object topicConfigs(JsonNode args) throws Exception {
        Map<String, String> found = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource(args))).all().get().get(resource(args)).entries()) {
            found.put(entry.name(), entry.value());
        }
        return found;
    }

    private Object setTopicConfig(JsonNode args) throws Exception {
        ConfigEntry entry = new ConfigEntry(args.get("key").asText(), args.get("value").asText());
        Collection<AlterConfigOp> change = List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        return admin.incrementalAlterConfigs(Map.of(resource(args), change)).all().get();
    }

    private long offset(JsonNode args, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(Values.partition(args), spec)).partitionResult(Values.partition(args)).get().offset();
    }

    private Object describeGroup(JsonNode args) throws Exception {
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group(args))).all().get().get(group(args));
        return List.of(found.groupState().toString().toLowerCase(), found.members().size());
    }

    private Object groupOffsets(JsonNode args) throws Exception {
        return admin.listConsumerGroupOffsets(group(args)).partitionsToOffsetAndMetadata().get().entrySet().stream()
                .filter(each -> each.getKey().topic().equals(topic(args)))
                .map(each -> List.of(each.getKey().partition(), each.getValue().offset()))
                .collect(Collectors.toList());
    }

    private Object setGroupOffsets(JsonNode args) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        for (JsonNode pair : args.get("offsets")) {
            wanted.put(new TopicPartition(topic(args), pair.get(0).asInt()), new OffsetAndMetadata(pair.get(1).asLong()));
        }
        return admin.alterConsumerGroupOffsets(group(args), wanted).all().get();
    }

    private Object deleteGroupOffsets(JsonNode args) throws Exception {
        Set<TopicPartition> unwanted = new HashSet<>();
        args.get("partitions").forEach(each -> unwanted.add(new TopicPartition(topic(args), each.asInt())));
        return admin.deleteConsumerGroupOffsets(group(args), unwanted).all().get();
    }

    private static String topic(JsonNode args) {
        return args.get("topic").asText();
    }

    private static String group(JsonNode args) {
        return args.get("group").asText();
    }

    private static ConfigResource resource(JsonNode args) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(args));
    }
}
