// KafkaJS brings gzip; the other three come from packages, as its documentation says.
'use strict';

const { CompressionCodecs, CompressionTypes } = require('kafkajs');
const lz4 = require('lz4js');
const { ZstdCodec } = require('zstd-codec');

async function useCodecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run((library) => resolve(new library.Streaming())));
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy');
  CompressionCodecs[CompressionTypes.LZ4] = () => codec(lz4.compress, lz4.decompress);
  CompressionCodecs[CompressionTypes.ZSTD] = () => codec((data) => zstd.compress(data), (data) => zstd.decompress(data));
}

function codec(compress, decompress) {
  return {
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  };
}

module.exports = { useCodecs };
