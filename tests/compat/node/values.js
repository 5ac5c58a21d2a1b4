// Records between KafkaJS's objects and the arrays of tests/compat/contract.py.
'use strict';

const MISSING = -1;

/** The message is the reason why the client can not do it. */
class Unsupported extends Error {}

const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'));
const text = (buffer) => (buffer === null || buffer === undefined ? null : Buffer.from(buffer).toString('base64'));

/** An Outgoing is key, value, headers, partition, timestamp. */
function outgoing([key, value, headers = [], partition = null, timestamp = null]) {
  const message = { key: bytes(key), value: bytes(value), headers: {} };
  for (const [name, content] of headers) {
    if (content === null) {
      throw new Unsupported('the value of a header can not be null');
    }
    (message.headers[name] ??= []).push(bytes(content));
  }
  if (partition !== null) {
    message.partition = partition;
  }
  if (timestamp !== null) {
    message.timestamp = String(timestamp);
  }
  return message;
}

function incoming(partition, message) {
  const headers = Object.entries(message.headers ?? {}).flatMap(([name, content]) =>
    [content].flat().map((each) => [name, text(each)]),
  );
  return [partition, Number(message.offset), Number(message.timestamp), text(message.key), text(message.value), headers];
}

module.exports = { MISSING, Unsupported, outgoing, incoming };
