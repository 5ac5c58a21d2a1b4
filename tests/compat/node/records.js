// Producing, and reading one partition. KafkaJS has no consumer without a group, so each reading is a group of its own.
'use strict';

const { randomUUID } = require('node:crypto');
const { CompressionTypes, Partitioners } = require('kafkajs');
const { Reading } = require('./reading');
const { MISSING, incoming, outgoing } = require('./values');

const SECONDS = 20;
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const MOST_RECORDS = 10_000;

module.exports = (kafka) => {
  async function send({ topic, records, codec = 'none' }, settings = {}) {
    const messages = records.map(outgoing);
    const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, ...settings });
    await producer.connect();
    try {
      // One call is one request, and one batch for each partition.
      for (let at = 0; at < messages.length; at += MOST_RECORDS) {
        await producer.send({ topic, messages: messages.slice(at, at + MOST_RECORDS), acks: -1, compression: CODECS[codec] });
      }
    } finally {
      await producer.disconnect();
    }
  }

  async function firstOffset({ topic, partition, start: [at, value] }) {
    const admin = kafka.admin();
    await admin.connect();
    try {
      if (at === 'time') {
        const found = await admin.fetchTopicOffsetsByTimestamp(topic, value);
        return found.find((each) => each.partition === partition).offset;
      }
      const found = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === partition);
      return { beginning: found.low, end: found.high }[at] ?? String(value);
    } finally {
      await admin.disconnect();
    }
  }

  async function read(args) {
    const offset = await firstOffset(args);
    const consumer = kafka.consumer({ groupId: `reading-${randomUUID()}`, readUncommitted: !args.committed_only });
    const reading = new Reading(consumer);
    await reading.start(args.topic);
    consumer.seek({ topic: args.topic, partition: args.partition, offset });
    try {
      const found = [];
      const deadline = Date.now() + SECONDS * 1000;
      while (found.length < args.count && Date.now() < deadline) {
        const polled = await reading.poll(args.count - found.length, (deadline - Date.now()) / 1000);
        found.push(...polled.filter(([partition]) => partition === args.partition));
      }
      return found.map(([partition, message]) => incoming(partition, message));
    } finally {
      await reading.stop();
    }
  }

  async function offsetForTime({ topic, partition, timestamp_ms: time }) {
    const admin = kafka.admin();
    await admin.connect();
    try {
      const high = (await admin.fetchTopicOffsets(topic)).find((each) => each.partition === partition).high;
      const found = (await admin.fetchTopicOffsetsByTimestamp(topic, time)).find((each) => each.partition === partition);
      // It puts the end in the place of nothing.
      return found.offset === high ? MISSING : Number(found.offset);
    } finally {
      await admin.disconnect();
    }
  }

  return {
    produce: (args) => send(args),
    produce_idempotent: (args) => send(args, { idempotent: true }),
    read,
    offset_for_time: offsetForTime,
  };
};
