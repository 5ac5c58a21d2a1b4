// The one transactional producer that this process may have.
'use strict';

const { Partitioners } = require('kafkajs');
const { outgoing } = require('./values');

module.exports = (kafka, member) => {
  let producer;
  let transaction;

  return {
    open_transactions: async ({ transactional_id: transactionalId }) => {
      producer = kafka.producer({
        transactionalId,
        idempotent: true,
        maxInFlightRequests: 1,
        createPartitioner: Partitioners.DefaultPartitioner,
      });
      await producer.connect();
      // Only a transaction takes the id over; one without records does no more than that.
      await (await producer.transaction()).abort();
    },
    begin: async () => {
      transaction = await producer.transaction();
    },
    send: async ({ topic, records }) => {
      await transaction.send({ topic, messages: records.map(outgoing), acks: -1 });
    },
    send_offsets: async () => {
      const { topic, reached } = member.reading;
      const partitions = [...reached].map(([partition, offset]) => ({ partition, offset: String(offset) }));
      await transaction.sendOffsets({ consumerGroupId: member.group, topics: [{ topic, partitions }] });
    },
    end: async ({ commit }) => {
      await (commit ? transaction.commit() : transaction.abort());
    },
  };
};
