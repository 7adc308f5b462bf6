/*
 * Works on a topic with Kafka's own KafkaShareConsumer, and prints what it gets, one line for each record:
 * value, delivery count, and what was done with it. Run as a single source file.
 *
 * Arguments: bootstrap, topic, group, mode (implicit or explicit), number of records to settle for good.
 *
 * In explicit mode the value of a record says what to do with it: "release" and "reject" once, "renew" renews the lease
 * first, after which poll() returns the record again, anything else is accepted.
 */

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareConsumerCheck {
    public static void main(String[] args) throws Exception {
        boolean explicit = args[3].equals("explicit");
        int wanted = Integer.parseInt(args[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("share.acknowledgement.mode", args[3]);
        long deadline = System.nanoTime() + Duration.ofSeconds(50).toNanos();
        Set<String> settled = new HashSet<>();
        Set<String> renewed = new HashSet<>();
        try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    System.out.println("failed " + error);
                }
            });
            consumer.subscribe(List.of(args[1]));
            while (settled.size() < wanted) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + settled + " after 50 s");
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    String outcome = explicit ? settle(consumer, record, renewed) : "accept";
                    System.out.println(record.value() + " " + record.deliveryCount().orElse((short) 0) + " " + outcome);
                    if (!outcome.startsWith("re") || outcome.equals("reject")) {
                        settled.add(record.value());
                    }
                }
                for (var result : consumer.commitSync(Duration.ofSeconds(20)).entrySet()) {
                    if (result.getValue().isPresent()) {
                        System.out.println("failed " + result);
                    }
                }
            }
        }
        System.out.println("done");
    }

    private static String settle(
            KafkaShareConsumer<String, String> consumer, ConsumerRecord<String, String> record, Set<String> renewed) {
        String value = record.value();
        boolean first = record.deliveryCount().orElse((short) 1) == 1;
        if (value.startsWith("release") && first) {
            consumer.acknowledge(record, AcknowledgeType.RELEASE);
            return "release";
        }
        if (value.startsWith("reject")) {
            consumer.acknowledge(record, AcknowledgeType.REJECT);
            return "reject";
        }
        if (value.startsWith("renew") && renewed.add(value)) {
            consumer.acknowledge(record, AcknowledgeType.RENEW);
            return "renew";
        }
        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
        return "accept";
    }
}
