// Topics, configs and groups.
'use strict';

const { ConfigResourceTypes } = require('kafkajs');

module.exports = (kafka) => {
  /** Plays something with an admin client of its own. */
  const withAdmin = (play) => async (args) => {
    const admin = kafka.admin();
    await admin.connect();
    try {
      return await play(admin, args);
    } finally {
      await admin.disconnect();
    }
  };
  const entries = (configs) => Object.entries(configs).map(([name, value]) => ({ name, value }));

  return {
    topics: withAdmin((admin) => admin.listTopics()),
    partitions: withAdmin(
      async (admin, { topic }) => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length,
    ),
    create_topic: withAdmin(async (admin, { topic, partitions, configs }) => {
      const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries: entries(configs) };
      if (!(await admin.createTopics({ topics: [wanted] }))) {
        // This is how it says that the topic is there already.
        throw Object.assign(new Error(`${topic} exists`), { code: 36 });
      }
    }),
    delete_topic: withAdmin((admin, { topic }) => admin.deleteTopics({ topics: [topic] })),
    add_partitions: withAdmin(async (admin, { topic, total }) => {
      await admin.createPartitions({ topicPartitions: [{ topic, count: total }] });
    }),
    topic_configs: withAdmin(async (admin, { topic }) => {
      const found = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic }] });
      return Object.fromEntries(found.resources[0].configEntries.map((each) => [each.configName, each.configValue]));
    }),
    set_topic_config: withAdmin(async (admin, { topic, key, value }) => {
      const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: key, value }] };
      await admin.alterConfigs({ resources: [resource] });
    }),
    delete_records: withAdmin(async (admin, { topic, partition, before }) => {
      // It looks for the leader in what it knows already, so it has to be made to know.
      await admin.fetchTopicOffsets(topic);
      await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] });
    }),
    bounds: withAdmin(async (admin, { topic, partition }) => {
      const found = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === partition);
      return [Number(found.low), Number(found.high)];
    }),
    brokers: withAdmin(async (admin) => (await admin.describeCluster()).brokers.length),
    groups: withAdmin(async (admin) => (await admin.listGroups()).groups.map((each) => each.groupId)),
    describe_group: withAdmin(async (admin, { group }) => {
      const found = (await admin.describeGroups([group])).groups[0];
      return [found.state.toLowerCase(), found.members.length];
    }),
    delete_group: withAdmin(async (admin, { group }) => {
      await admin.deleteGroups([group]);
    }),
    group_offsets: withAdmin(async (admin, { group, topic }) => {
      const found = await admin.fetchOffsets({ groupId: group, topics: [topic] });
      return found[0].partitions
        .map((each) => [each.partition, Number(each.offset)])
        .filter(([, offset]) => offset >= 0);
    }),
    set_group_offsets: withAdmin((admin, { group, topic, offsets }) =>
      admin.setOffsets({
        groupId: group,
        topic,
        partitions: offsets.map(([partition, offset]) => ({ partition, offset: String(offset) })),
      }),
    ),
  };
};
