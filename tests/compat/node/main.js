// Answers calls on standard input by KafkaJS: "serve BOOTSTRAP"; or says its "version".
'use strict';

const readline = require('node:readline');
const { Kafka, logLevel } = require('kafkajs');
const { useCodecs } = require('./codecs');
const { login } = require('./login');
const { Unsupported } = require('./values');

const NOT_KAFKA = -1000;

async function main([mode, bootstrap]) {
  if (mode === 'version') {
    console.log(require('kafkajs/package.json').version);
    return;
  }
  await useCodecs();
  const kafka = new Kafka({
    brokers: [bootstrap],
    clientId: 'kafkajs',
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, retries: 4 },
    ...login(),
  });
  const member = require('./member')(kafka);
  const verbs = {
    ...require('./records')(kafka),
    ...member.verbs,
    ...require('./administration')(kafka),
    ...require('./transactions')(kafka, member),
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(verbs, JSON.parse(line)))}\n`);
  }
  process.exit(0);
}

async function answer(verbs, call) {
  const verb = verbs[call.verb];
  if (!verb) {
    return { unsupported: '' };
  }
  try {
    return { result: (await verb(call.args)) ?? null };
  } catch (error) {
    return error instanceof Unsupported ? { unsupported: error.message } : { refused: code(error), message: String(error) };
  }
}

/** The number of the error that lies at the bottom of those that KafkaJS wraps around it. */
function code(error) {
  for (let each = error; each; each = each.cause ?? each.originalError ?? each.errors?.[0] ?? each.groups?.[0]) {
    const number = each.code ?? each.errorCode;
    if (typeof number === 'number') {
      return number;
    }
  }
  return NOT_KAFKA;
}

main(process.argv.slice(2));
