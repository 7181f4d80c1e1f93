// A client under orders, for tests: one command a line on stdin, one JSON object a line on stdout.
// The commands are those of clients/cpp/test/slotline_probe.cpp.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { CallError, Client, encoded, strings, tensor } from '../lib/index.js';

const hex = (bytes) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');

let client;
let begun = [];

function inputOf(text) {
  const [name, dtype, dims, content = ''] = text.split(':');
  const shape = dims === '-' ? [] : dims.split('x').map(Number);
  if (dtype === 'BYTES')
    return [name, strings(shape, content === '' ? [] : content.split(',').map((part) => Buffer.from(part, 'hex')))];
  const bytes = content.startsWith('@') ? readFileSync(Buffer.from(content.slice(1), 'hex')) : Buffer.from(content, 'hex');
  return [name, dtype === 'ENCODED' ? encoded(bytes) : tensor(dtype, shape, bytes)];
}

function optionsOf(text) {
  const options = {};
  for (const option of text === '-' ? [] : text.split(';')) {
    const [name, value] = option.split('=');
    if (name === 'budget_us') options.budgetUs = Number(value);
    else if (name === 'finite') options.finite = true;
    else if (name === 'copy') options.copy = value !== '0';
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

function jsonOf({ outputs }) {
  const shown = {};
  for (const [name, { dtype, shape, bytes, data }] of Object.entries(outputs)) {
    shown[name] = { dtype, shape, hex: hex(bytes) };
    if (dtype === 'BYTES') shown[name].elements = data.map(hex);
    else if (hex(data) !== shown[name].hex) throw new Error(`${name}: data and bytes differ`);
  }
  return { ok: true, outputs: shown };
}

function jsonOfError(error) {
  const json = { ok: false, error: error.name, message: error.message };
  if (error instanceof CallError)
    Object.assign(json, { code: error.code, field: error.field, retry_after_us: error.retryAfterUs });
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

const COMMANDS = {
  async connect([endpoint, timeoutMs]) {
    client?.close();
    client = undefined;
    client = await Client.connect(endpoint, { timeoutMs: Number(timeoutMs) });
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
      begun.push(client.infer(model, inputs, options).catch((error) => error));
    }
    return { begun: begun.length };
  },
  async end() {
    const ending = begun;
    begun = [];
    return count(await Promise.all(ending));
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
