// The demo's two jobs by the Node client: judge the photos of a directory, and score a file of ticks one at a time and many at
// once.
//
//   node demo.mjs ENDPOINT PARTS_DIR TICKS_FILE [ROWS_FILE]
//
// TICKS_FILE holds rows of 67 float32. Prints one JSON object; outputs are hex of their bytes, so that two clients can be
// compared. ROWS_FILE gets one line of hex per tick: first those sent one at a time, then the same ticks packed.

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { Client, encoded, tensor } from '../lib/index.js';

const FEATURES = 67;
const ROW_BYTES = FEATURES * Float32Array.BYTES_PER_ELEMENT;

const hex = (bytes) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');

/** Return the outputs of one reply as hex, in the order of their names. */
function hexOf({ outputs }) {
  return Object.keys(outputs)
    .sort()
    .map((name) => hex(outputs[name].bytes))
    .join('');
}

/** FNV-1a, 64 bits: enough to see that two runs gave the same, and the same few lines in every language. */
function digest(lines) {
  let hash = 0xcbf29ce484222325n;
  for (const line of lines) {
    for (const byte of Buffer.from(line)) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash.toString(16).padStart(16, '0');
}

async function judgeParts(client, directory) {
  const files = readdirSync(directory)
    .filter((name) => name.endsWith('.png'))
    .sort();
  const results = await client.inferMany(
    'qc',
    files.map((file) => ({ image: encoded(readFileSync(join(directory, file)), 'image/png') })),
  );
  return results.map(({ outputs: { verdict, score, boxes } }, index) => ({
    file: files[index],
    verdict: verdict.data[0].toString(),
    score: hex(score.bytes),
    boxes_shape: boxes.shape,
    boxes: hex(boxes.bytes),
  }));
}

async function streamTicks(client, ticks, rowsFile) {
  const requests = [];
  for (let at = 0; at + ROW_BYTES <= ticks.length; at += ROW_BYTES) {
    requests.push({ features: tensor('FP32', [1, FEATURES], ticks.subarray(at, at + ROW_BYTES)) });
  }
  const alone = [];
  const waitsUs = [];
  for (const request of requests) {
    const began = performance.now();
    const result = await client.infer('ticks', request);
    waitsUs.push((performance.now() - began) * 1e3);
    alone.push(hexOf(result));
  }
  const began = performance.now();
  const results = await client.inferMany('ticks', requests);
  const seconds = (performance.now() - began) / 1e3;
  const packed = results.map(hexOf);
  if (rowsFile !== undefined) writeFileSync(rowsFile, [...alone, ...packed, ''].join('\n'));
  waitsUs.sort((a, b) => a - b);
  const percentile = (percent) => Number((waitsUs[Math.floor(((waitsUs.length - 1) * percent) / 100)] ?? 0).toFixed(1));
  return {
    count: requests.length,
    digest: digest(alone),
    packed_digest: digest(packed),
    p50_us: percentile(50),
    p99_us: percentile(99),
    packed_per_s: Math.round(requests.length / seconds),
  };
}

const [endpoint, partsDirectory, ticksFile, rowsFile] = process.argv.slice(2);
if (ticksFile === undefined) {
  console.error('usage: node demo.mjs ENDPOINT PARTS_DIR TICKS_FILE [ROWS_FILE]');
  process.exit(2);
}
const client = await Client.connect(endpoint, { timeoutMs: 30_000 });
try {
  const qc = await judgeParts(client, partsDirectory);
  const ticks = await streamTicks(client, readFileSync(ticksFile), rowsFile);
  console.log(JSON.stringify({ qc, ticks }));
} finally {
  client.close();
}
