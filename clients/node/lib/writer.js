// Requests as messages. Pure: no socket, no clock.

import { Builder } from 'flatbuffers';

import { checksumOf } from './checksum.js';
import { RequestRefused } from './errors.js';
import {
  Body,
  CancelBody,
  Code,
  Flag,
  HealthBody,
  HelloBody,
  Infer,
  KeyPolicy,
  Kind,
  Message,
  Param,
  ParamType,
  Place,
  RequestedOutput,
  Route,
  Tensor,
} from './fb/slotline.js';
import { BY_REFERENCE_BYTES, MAX_HEADER_BYTES, MAX_INLINE_BYTES, MAX_INLINE_TOTAL_BYTES } from './limits.js';
import { dtypeNumber } from './tensors.js';

const CLIENT = 'slotline-node/0.1.0';
const MAX_U64 = (1n << 64n) - 1n;

/** Return the Hello that starts a connection. */
export function writeHello(id) {
  const builder = new Builder(256);
  const identifiers = HelloBody.createIdentifiersVector(builder, [builder.createString('SLT1')]);
  const client = builder.createString(CLIENT);
  const body = HelloBody.createHelloBody(builder, client, identifiers, true);
  return finish(builder, Body.HelloBody, body, { id, kind: Kind.Hello });
}

/** Return the message that tells the server to end a request. */
export function writeCancel(id) {
  const builder = new Builder(256);
  CancelBody.startCancelBody(builder);
  return finish(builder, Body.CancelBody, CancelBody.endCancelBody(builder), { id, kind: Kind.Cancel });
}

/** Return a question about the server's state, or with a name a model's. */
export function writeHealth(id, scope, model) {
  const builder = new Builder(256);
  const modelAt = model ? builder.createString(model) : 0;
  HealthBody.startHealthBody(builder);
  HealthBody.addScope(builder, scope);
  if (modelAt) HealthBody.addModel(builder, modelAt);
  return finish(builder, Body.HealthBody, HealthBody.endHealthBody(builder), { id, kind: Kind.Health });
}

/**
 * Return one request as {parts, bytes}: the header and its payload frames, and the sum of their bytes.
 *
 * @param request - {id, model, inputs, options, budgetUs, mayPack}; mayPack marks a header without frames as one of a Packed message
 * @param limits - the server's; see readWelcome
 */
export function writeRequest({ id, model, inputs, options, budgetUs, mayPack }, limits) {
  const builder = new Builder(1024);
  const frames = [];
  const inline = [];
  const tensors = [];
  let room = MAX_INLINE_TOTAL_BYTES;
  for (const [name, input] of Object.entries(inputs)) {
    const isInline = input.bytes.length <= Math.min(MAX_INLINE_BYTES, room);
    tensors.push(writeTensor(builder, name, input, isInline ? -1 : frames.length));
    if (isInline) {
      room -= input.bytes.length;
      inline.push(input.bytes);
    } else {
      frames.push(frameOf(input.bytes, options.copy ?? true));
    }
  }
  const checksum = options.checksum ? checksumOf([...inline, ...frames]) : 0n;
  const body = writeInfer(builder, model, tensors, options, checksum);
  const flags = ((options.idempotent ?? true) ? Flag.Idempotent : 0) | (mayPack && frames.length === 0 ? Flag.Packed : 0);
  const header = finish(builder, Body.Infer, body, {
    id,
    kind: Kind.InferRequest,
    flags,
    budgetUs,
    bornUs: unsigned(options.bornUs ?? 0, 'bornUs'),
    key: unsigned(options.key ?? 0, 'key'),
    frames: frames.length,
    priority: within(options.priority ?? 0, 255, 'priority'),
  });
  const bytes = header.length + frames.reduce((sum, frame) => sum + frame.length, 0);
  checkLimit('header', header.length, limits.maxHeader || MAX_HEADER_BYTES, 'bytes');
  checkLimit('payload_frames', frames.length, limits.maxFrames, 'frames');
  checkLimit('inputs', bytes, limits.maxPayload, 'bytes');
  return { parts: [header, ...frames], bytes };
}

function checkLimit(field, got, limit, unit) {
  if (limit === 0 || got <= limit) return;
  throw new RequestRefused(Code.TooLarge, `${field}: expected at most ${limit} ${unit} (the server's limit), got ${got}`, {
    field,
  });
}

/** Return a u64 as a bigint; throws RequestRefused. */
export function unsigned(value, field) {
  const number = typeof value === 'bigint' ? value : Number.isSafeInteger(value) ? BigInt(value) : -1n;
  if (number < 0n || number > MAX_U64)
    throw new RequestRefused(Code.BadParam, `${field}: expected a u64, got ${value}`, { field });
  return number;
}

/** Return a whole number from 0 to *most*; throws RequestRefused. */
function within(value, most, field) {
  if (!Number.isInteger(value) || value < 0 || value > most)
    throw new RequestRefused(Code.BadParam, `${field}: expected 0 to ${most}, got ${value}`, { field });
  return value;
}

/** Return the number of a key policy's name; throws RequestRefused. */
function policyOf(name) {
  const policy = KeyPolicy[name];
  if (typeof policy === 'number') return policy;
  const names = Object.keys(KeyPolicy).filter((key) => Number.isNaN(Number(key)));
  throw new RequestRefused(Code.BadParam, `key_policy: expected ${names.join(', ')}, got ${name}`, { field: 'key_policy' });
}

function writeTensor(builder, name, input, frame) {
  const dtype = dtypeNumber(input?.dtype);
  if (dtype === undefined) {
    throw new RequestRefused(Code.BadDType, `${name}: expected tensor(), strings() or encoded()`, { field: name });
  }
  const nameAt = builder.createString(name);
  const shapeAt = input.shape.length > 0 ? Tensor.createShapeVector(builder, input.shape.map(BigInt)) : 0;
  const inlineAt = frame < 0 ? builder.createByteVector(input.bytes) : 0;
  const contentTypeAt = input.contentType ? builder.createString(input.contentType) : 0;
  Tensor.startTensor(builder);
  Tensor.addName(builder, nameAt);
  Tensor.addDtype(builder, dtype);
  Tensor.addPlace(builder, frame < 0 ? Place.Inline : Place.Frame);
  if (shapeAt) Tensor.addShape(builder, shapeAt);
  if (frame > 0) Tensor.addFrame(builder, frame);
  Tensor.addNbytes(builder, BigInt(input.bytes.length));
  if (frame < 0) Tensor.addInlineData(builder, inlineAt);
  if (contentTypeAt) Tensor.addContentType(builder, contentTypeAt);
  return Tensor.endTensor(builder);
}

function writeInfer(builder, model, tensors, options, checksum) {
  const keyPolicy = policyOf(options.keyPolicy ?? 'OneByOne');
  const latestN = within(options.latestN ?? 0, 65_535, 'latest_n');
  const modelAt = builder.createString(model);
  const versionAt = options.version ? builder.createString(options.version) : 0;
  const inputsAt = Infer.createInputsVector(builder, tensors);
  const wanted = (options.outputs ?? []).map((name) => {
    const nameAt = builder.createString(name);
    RequestedOutput.startRequestedOutput(builder);
    RequestedOutput.addName(builder, nameAt);
    return RequestedOutput.endRequestedOutput(builder);
  });
  const params = Object.entries(options.params ?? {}).map(([name, value]) => writeParam(builder, name, value));
  const outputsAt = wanted.length > 0 ? Infer.createOutputsVector(builder, wanted) : 0;
  const paramsAt = params.length > 0 ? Infer.createParamsVector(builder, params) : 0;
  const clientIdAt = options.clientRequestId ? builder.createString(options.clientRequestId) : 0;
  Infer.startInfer(builder);
  Infer.addModel(builder, modelAt);
  if (versionAt) Infer.addVersion(builder, versionAt);
  Infer.addInputs(builder, inputsAt);
  if (outputsAt) Infer.addOutputs(builder, outputsAt);
  if (paramsAt) Infer.addParams(builder, paramsAt);
  if (clientIdAt) Infer.addClientRequestId(builder, clientIdAt);
  Infer.addKeyPolicy(builder, keyPolicy);
  Infer.addLatestN(builder, latestN);
  Infer.addFinite(builder, options.finite ?? false);
  if (checksum) Infer.addChecksum(builder, checksum);
  return Infer.endInfer(builder);
}

/** Write one parameter: a boolean, a text, a bigint (an integer) or a number (an integer when it is whole, else a double). */
function writeParam(builder, name, value) {
  const nameAt = builder.createString(name);
  const textAt = typeof value === 'string' ? builder.createString(value) : 0;
  Param.startParam(builder);
  Param.addName(builder, nameAt);
  if (typeof value === 'boolean') {
    Param.addPtype(builder, ParamType.Bool);
    Param.addIntValue(builder, value ? 1n : 0n);
  } else if (typeof value === 'bigint' || Number.isSafeInteger(value)) {
    Param.addPtype(builder, ParamType.Int);
    Param.addIntValue(builder, BigInt(value));
  } else if (typeof value === 'number') {
    Param.addPtype(builder, ParamType.Double);
    Param.addDoubleValue(builder, value);
  } else if (typeof value === 'string') {
    Param.addPtype(builder, ParamType.Text);
    Param.addText(builder, textAt);
  } else {
    throw new RequestRefused(Code.BadParam, `${name}: expected a boolean, number, bigint or text`, { field: name });
  }
  return Param.endParam(builder);
}

/** Return the header of a message as bytes of its own. */
function finish(
  builder,
  bodyType,
  bodyAt,
  { id, kind, flags = 0, budgetUs = 0, bornUs = 0n, key = 0n, frames = 0, priority = 0 },
) {
  Message.startMessage(builder);
  Message.addRoute(
    builder,
    Route.createRoute(builder, BigInt(id), BigInt(budgetUs), bornUs, key, 0, 0, flags, frames, 0, kind, priority, 0n),
  );
  Message.addBodyType(builder, bodyType);
  Message.addBody(builder, bodyAt);
  Message.finishMessageBuffer(builder, Message.endMessage(builder));
  return Buffer.from(builder.asUint8Array());
}

/** Return a payload frame: the caller's memory when it is large and lent, else a copy. */
function frameOf(bytes, copy) {
  return bytes.length >= BY_REFERENCE_BYTES && !copy ? bytes : Buffer.from(bytes);
}
