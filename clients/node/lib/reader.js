// Replies of verified headers to values of JavaScript. Pure: no socket, no clock.

import { ByteBuffer } from 'flatbuffers';

import { BadReply, errorOf } from './errors.js';
import { Body, DType, Failure, HealthOut, InferOut, Message, ParamType, Place, WelcomeBody } from './fb/slotline.js';
import { MAX_RANK } from './limits.js';
import { itemBytes, unpackBytes, viewOf } from './tensors.js';

/** Return the message of a verified header. */
export function messageOf(header) {
  return Message.getRootAsMessage(new ByteBuffer(header));
}

/** Return the error of an error reply. */
export function readFailure(message) {
  ensure(message.bodyType() === Body.Failure, 'an error without its body');
  const failure = message.body(new Failure());
  return errorOf(failure.code(), failure.message() ?? '', {
    field: failure.field() ?? '',
    retryAfterUs: Number(failure.retryAfterUs()),
    stage: failure.stage() ?? '',
  });
}

/** Return what a server says of itself; a limit of 0 was not told. */
export function readWelcome(message) {
  ensure(message.bodyType() === Body.WelcomeBody, 'a welcome without its body');
  const welcome = message.body(new WelcomeBody());
  const limits = welcome.limits();
  return {
    epoch: welcome.epoch(),
    limits: {
      maxHeader: limits?.maxHeader() ?? 0,
      maxPayload: Number(limits?.maxPayload() ?? 0),
      maxFrames: limits?.maxFrames() ?? 0,
      maxInFlight: limits?.maxInFlight() ?? 0,
      defaultBudgetUs: Number(limits?.defaultBudgetUs() ?? 0),
      maxBudgetUs: Number(limits?.maxBudgetUs() ?? 0),
    },
  };
}

/** Return what a server says of its state. */
export function readHealth(message) {
  ensure(message.bodyType() === Body.HealthOut, 'a state without its body');
  const health = message.body(new HealthOut());
  return { ok: health.ok(), state: health.state() ?? '', queued: health.queued(), inFlight: health.inFlight() };
}

/** Return the result that a reply holds; throws BadReply. *frames*: its payload frames. */
export function readResult(message, frames) {
  ensure(message.bodyType() === Body.InferOut, 'a reply without its body');
  const body = message.body(new InferOut());
  const left = new Set(frames.keys());
  // Without a prototype: the names are the server's.
  const outputs = Object.create(null);
  for (let index = 0; index < body.outputsLength(); index++) {
    const wire = body.outputs(index);
    outputs[wire.name()] = readOutput(wire, frames, left);
  }
  ensure(left.size === 0, 'a frame that no tensor uses');
  return {
    model: body.model() ?? '',
    version: body.version() ?? '',
    outputs,
    params: readParams(body),
    timing: readTiming(body),
    retries: body.retries(),
    backlogUs: body.backlogUs(),
  };
}

function readOutput(wire, frames, left) {
  const name = wire.name().slice(0, 64);
  const dtype = DType[wire.dtype()];
  ensure(dtype !== undefined && dtype !== 'Unset', `${name}: unknown datatype`);
  const shape = readShape(wire, name);
  const bytes = content(wire, frames, left, name);
  ensure(BigInt(bytes.length) === wire.nbytes(), `${name}: nbytes differs from the bytes there`);
  // As doubles a product never wraps; where it is no longer exact, it is far above any size.
  const count = shape.reduce((product, dim) => product * dim, 1);
  const item = itemBytes(dtype);
  if (item > 0) ensure(count * item === bytes.length, `${name}: nbytes differs from shape and datatype`);
  if (dtype === 'ENCODED') ensure(shape.length === 1 && shape[0] === 1, `${name}: expected shape [1]`);
  return { dtype, shape, bytes, data: dtype === 'BYTES' ? elements(bytes, count, name) : viewOf(dtype, bytes) };
}

function readShape(wire, name) {
  ensure(wire.shapeLength() <= MAX_RANK, `${name}: too many dimensions`);
  return Array.from({ length: wire.shapeLength() }, (_, index) => {
    const dim = Number(wire.shape(index));
    ensure(dim >= 0, `${name}: a negative dimension`);
    return dim;
  });
}

function content(wire, frames, left, name) {
  if (wire.place() === Place.Inline) {
    const bytes = wire.inlineDataArray();
    ensure(bytes !== null, `${name}: no inline bytes`);
    return bytes;
  }
  ensure(wire.place() === Place.Frame, `${name}: expected a frame or inline bytes`);
  ensure(left.delete(wire.frame()), `${name}: its frame is not there or used twice`);
  return frames[wire.frame()];
}

function elements(bytes, count, name) {
  try {
    return unpackBytes(bytes, count);
  } catch (error) {
    throw new BadReply(`not a valid reply: ${name}: ${error.message}`);
  }
}

function readTiming(body) {
  return Array.from({ length: body.timingLength() }, (_, index) => {
    const row = body.timing(index);
    return { queueUs: row.queueUs(), runUs: row.runUs(), batch: row.batch() };
  });
}

function readParams(body) {
  const params = Object.create(null);
  for (let index = 0; index < body.paramsLength(); index++) {
    const param = body.params(index);
    params[param.name()] = paramValue(param);
  }
  return params;
}

function paramValue(param) {
  switch (param.ptype()) {
    case ParamType.Bool:
      return param.intValue() !== 0n;
    case ParamType.Int:
      return param.intValue();
    case ParamType.Double:
      return param.doubleValue();
    default:
      return param.text() ?? '';
  }
}

function ensure(holds, otherwise) {
  if (!holds) throw new BadReply(`not a valid reply: ${otherwise}`);
}
