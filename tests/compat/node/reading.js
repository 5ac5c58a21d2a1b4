// A consumer of KafkaJS that is asked for records, where KafkaJS would rather push them.
'use strict';

const BEAT_MS = 300;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Reading {
  constructor(consumer) {
    this.consumer = consumer;
    this.owned = [];
    this.taken = [];
    this.wanted = 0;
    this.reached = new Map();
    this.crash = null;
    const { GROUP_JOIN, CRASH, REBALANCING } = consumer.events;
    consumer.on(GROUP_JOIN, ({ payload }) => this._joined(payload));
    consumer.on(REBALANCING, () => (this.owned = []));
    consumer.on(CRASH, ({ payload }) => (this.crash = payload.error));
  }

  async start(topic) {
    this.topic = topic;
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true });
    await this.consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: (batch) => this._offer(batch) });
  }

  /** Up to so many records, and after a while what there is. */
  async poll(count, seconds) {
    const deadline = Date.now() + seconds * 1000;
    this.taken = [];
    this.wanted = count;
    while (this.taken.length < count && Date.now() < deadline && this.crash === null) {
      await pause(5);
    }
    this.wanted = 0;
    if (this.crash !== null) {
      const error = this.crash;
      this.crash = null;
      throw error;
    }
    return this.taken;
  }

  async commit() {
    const offsets = [...this.reached].map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) }));
    if (offsets.length > 0) {
      await this.consumer.commitOffsets(offsets);
    }
  }

  async stop() {
    await this.consumer.disconnect();
  }

  _joined({ memberAssignment }) {
    this.owned = [...(memberAssignment[this.topic] ?? [])].sort((one, other) => one - other);
    this.reached.clear();
  }

  /** Hands out the records of a batch one by one as they are wanted, and stays a member while nobody wants them. */
  async _offer({ batch, resolveOffset, heartbeat, isRunning, isStale }) {
    for (const message of batch.messages) {
      for (let beat = Date.now(); this.taken.length >= this.wanted; ) {
        if (!isRunning() || isStale()) {
          return;
        }
        if (Date.now() - beat > BEAT_MS) {
          beat = Date.now();
          await heartbeat();
        }
        await pause(5);
      }
      if (!isRunning() || isStale()) {
        return;
      }
      this.taken.push([batch.partition, message]);
      this.reached.set(batch.partition, Number(message.offset) + 1);
      resolveOffset(message.offset);
    }
  }
}

module.exports = { Reading };
