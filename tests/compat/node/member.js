// The one member of a group that this process may be.
'use strict';

const { Reading } = require('./reading');
const { Unsupported, incoming } = require('./values');

const SECONDS = 20;
const HEARTBEAT_MS = 500;

module.exports = (kafka) => {
  const member = { reading: null, group: '' };

  async function join({ group, topic, session_ms: session = 10_000, hand_over: handOver, instance_id: instance }) {
    if (handOver) {
      throw new Unsupported('it is not asked before partitions are taken from it');
    }
    if (instance) {
      throw new Unsupported('it has no static members');
    }
    const consumer = kafka.consumer({
      groupId: group,
      sessionTimeout: session,
      heartbeatInterval: Math.min(session / 4, HEARTBEAT_MS),
      metadataMaxAge: 1_000,
      maxWaitTimeInMs: 200,
      allowAutoTopicCreation: false,
    });
    member.group = group;
    member.reading = new Reading(consumer);
    await member.reading.start(topic);
  }

  const poll = async ({ count, seconds }) =>
    (await member.reading.poll(count, seconds)).map(([partition, message]) => incoming(partition, message));

  async function consume(args) {
    await join(args);
    const found = await poll({ count: args.count, seconds: SECONDS });
    await member.reading.commit();
    await member.reading.stop();
    return found;
  }

  member.verbs = {
    join,
    poll,
    consume,
    owned: async () => member.reading.owned,
    commit: () => member.reading.commit(),
    leave: () => member.reading.stop(),
  };
  return member;
};
