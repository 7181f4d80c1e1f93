// A client under orders, for tests: one command a line on stdin, one JSON object a line on stdout.
// The commands are those of clients/cpp/test/slotline_probe.cpp.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { CallError, Client, encoded, readKeys, strided, strings, tensor } from '../lib/index.js';

const hex = (bytes) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');

let client;
let begun = [];
// Cancels the calls that were begun.
let stop = new AbortController();

const elementOf = (text) => Buffer.from(text === '-' ? '' : text, 'hex');

function stridedOf(dtype, shape, memory, layout) {
  const [first, strides, order] = layout.split('/');
  return strided(dtype, shape, memory, strides.split('x').map(Number), { first: Number(first), bigEndian: order === 'big' });
}

function inputOf(text) {
  const [name, dtype, dims, content = '', layout] = text.split(':');
  const shape = dims === '-' ? [] : dims.split('x').map(Number);
  if (dtype === 'BYTES')
    return [name, strings(shape, content === '' ? [] : content.split(',').map(elementOf))];
  if (layout !== undefined) return [name, stridedOf(dtype, shape, Buffer.from(content, 'hex'), layout)];
  const bytes = content.startsWith('@') ? readFileSync(Buffer.from(content.slice(1), 'hex')) : Buffer.from(content, 'hex');
  return [name, dtype === 'ENCODED' ? encoded(bytes) : tensor(dtype, shape, bytes)];
}

const OPTIONS = { budget_us: 'budgetUs', key: 'key', born_us: 'bornUs', priority: 'priority', latest_n: 'latestN' };

function optionsOf(text) {
  const options = {};
  for (const option of text === '-' ? [] : text.split(';')) {
    const [name, value] = option.split('=');
    if (name in OPTIONS) options[OPTIONS[name]] = ['key', 'born_us'].includes(name) ? BigInt(value) : Number(value);
    else if (name === 'finite' || name === 'checksum') options[name] = true;
    else if (name === 'copy' || name === 'idempotent') options[name] = value !== '0';
    else if (name === 'version') options.version = value;
    else if (name === 'client_request_id') options.clientRequestId = value;
    else if (name === 'key_policy') options.keyPolicy = value;
    else if (name === 'output') (options.outputs ??= []).push(value);
    else if (name === 'on_failure')
      Object.assign(options, { onFailure: value, read: ({ outputs }) => outputs.verdict.data[0].toString() });
    else throw new Error(`no option ${name}`);
  }
  return options;
}

function requestOf([model, options, ...tensors]) {
  return { model, options: optionsOf(options), inputs: Object.fromEntries(tensors.map(inputOf)) };
}

function jsonOf({ outputs, retries }) {
  const shown = {};
  for (const [name, { dtype, shape, bytes, data }] of Object.entries(outputs)) {
    shown[name] = { dtype, shape, hex: hex(bytes) };
    if (dtype === 'BYTES') shown[name].elements = data.map(hex);
    else if (hex(data) !== shown[name].hex) throw new Error(`${name}: data and bytes differ`);
  }
  return { ok: true, retries, outputs: shown };
}

function jsonOfError(error) {
  const json = { ok: false, error: error.name, message: error.message };
  if (error instanceof CallError)
    Object.assign(json, { code: error.code, field: error.field, stage: error.stage, retry_after_us: error.retryAfterUs });
  return json;
}

/** Return how many of the calls ended in which way. */
function count(outcomes) {
  const counts = {};
  for (const outcome of outcomes) {
    const name = outcome instanceof Error ? outcome.name : 'ok';
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

/** Wait for the calls that were begun. */
async function ended() {
  const ending = begun;
  begun = [];
  return Promise.all(ending);
}

const COMMANDS = {
  async connect([endpoint, timeoutMs, ...words]) {
    client?.close();
    client = undefined;
    const files = Object.fromEntries(words.map((word) => word.split('=')).map(([name, hex]) => [name, Buffer.from(hex, 'hex')]));
    const settings = { timeoutMs: Number(timeoutMs) };
    if ('server_key' in files) settings.keys = readKeys(files.server_key.toString(), files.key_file.toString());
    client = 'connect' in files ? new Client(endpoint, settings) : await Client.connect(endpoint, settings);
    return { epoch: String(client.epoch) };
  },
  async infer(words) {
    const { model, options, inputs } = requestOf(words);
    const answer = await client.infer(model, inputs, options);
    return 'onFailure' in options ? { value: answer } : jsonOf(answer);
  },
  async begin([number, ...words]) {
    const { model, options, inputs } = requestOf(words);
    for (let index = 0; index < Number(number); index++) {
      const signal = stop.signal;
      begun.push(client.infer(model, inputs, { ...options, signal }).catch((error) => error));
    }
    return { begun: begun.length };
  },
  async end() {
    return count(await ended());
  },
  async outcomes() {
    return { outcomes: (await ended()).map((outcome) => (outcome instanceof Error ? jsonOfError(outcome) : jsonOf(outcome))) };
  },
  async cancel() {
    stop.abort();
    stop = new AbortController();
    return { cancelled: begun.length };
  },
  async health() {
    const { state } = await client.health();
    return { state };
  },
  async ready([model]) {
    return { ready: await client.ready(model) };
  },
  async close() {
    client.close();
    return { closed: true };
  },
  async many([number, ...words]) {
    const { model, options, inputs } = requestOf(words);
    return count(await client.inferMany(model, Array(Number(number)).fill(inputs), { ...options, returnErrors: true }));
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(' ');
  console.log(JSON.stringify(await COMMANDS[command](words).catch(jsonOfError)));
}
client?.close();
