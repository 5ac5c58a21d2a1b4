package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;

/** What an operator may want to know about partitions, their producers and their transactions. */
final class Inquiries {
    private static final int MISSING = -1;

    private final Admin admin;

    Inquiries(String bootstrap) {
        admin = Admin.create(Login.settings(bootstrap));
    }

    void addTo(Map<String, Verb> verbs) {
        verbs.put("newest", args -> admin.listOffsets(Map.of(Values.partition(args), OffsetSpec.maxTimestamp()))
                .partitionResult(Values.partition(args)).get().offset());
        verbs.put("log_dir_sizes", this::logDirSizes);
        verbs.put("producers", args -> admin.describeProducers(List.of(Values.partition(args)))
                .partitionResult(Values.partition(args)).get().activeProducers().stream()
                .map(each -> List.of(each.producerId(), each.currentTransactionStartOffset().orElse(MISSING)))
                .collect(Collectors.toList()));
        verbs.put("transactions", args -> admin.listTransactions().all().get().stream()
                .map(each -> List.of(each.transactionalId(), name(each.state())))
                .collect(Collectors.toList()));
        verbs.put("describe_transaction", this::describeTransaction);
    }

    private Object logDirSizes(JsonNode args) throws Exception {
        List<Object> sizes = new ArrayList<>();
        for (Map<String, LogDirDescription> folders : admin.describeLogDirs(List.of(0)).allDescriptions().get().values()) {
            for (LogDirDescription folder : folders.values()) {
                folder.replicaInfos().forEach((where, info) -> {
                    if (where.topic().equals(args.get("topic").asText())) {
                        sizes.add(List.of(where.partition(), info.size()));
                    }
                });
            }
        }
        return sizes;
    }

    private Object describeTransaction(JsonNode args) throws Exception {
        String id = args.get("transactional_id").asText();
        TransactionDescription found = admin.describeTransactions(List.of(id)).description(id).get();
        List<Object> partitions = found.topicPartitions().stream()
                .map(each -> List.of(each.topic(), each.partition())).collect(Collectors.toList());
        return List.of(name(found.state()), partitions);
    }

    private static String name(TransactionState state) {
        return state.toString().toLowerCase();
    }
}
