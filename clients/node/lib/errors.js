// What can go wrong for a caller: one class per thing that a caller does about it. All are SlotlineErrors.

import { Code } from './fb/slotline.js';

/** Anything that a Client rejects with about the server, the connection or a request. */
export class SlotlineError extends Error {
  get name() {
    return this.constructor.name;
  }
}

/** Nobody answered at the endpoint in time. */
export class ServerUnreachable extends SlotlineError {}

/**
 * The connection, or that life of the server, ended with the call in flight: it may have run or not. Sending an idempotent
 * request again is safe; the next call opens a new connection.
 */
export class ConnectionLost extends SlotlineError {}

/** A key that the caller gave is missing, damaged, or not readable; nothing was sent. */
export class BadKeys extends SlotlineError {}

/** What the server sent for this call is no valid reply. */
export class BadReply extends SlotlineError {}

/**
 * One call got no result.
 *
 * code: a stable number whose hundred says whose fault it is, codeName its name; field: the tensor, parameter or header field at
 * fault; retryAfterUs: when to try again, 0 unless the code is 2xx; stage: where it happened.
 */
export class CallError extends SlotlineError {
  constructor(code, reason, { field = '', retryAfterUs = 0, stage = '' } = {}) {
    super(`${Code[code]} (${code}): ${reason}`);
    this.code = code;
    this.codeName = Code[code];
    this.reason = reason;
    this.field = field;
    this.retryAfterUs = retryAfterUs;
    this.stage = stage;
  }
}

/** The request was not taken: it is wrong (1xx), or comes at a bad time (2xx, a Busy). */
export class RequestRefused extends CallError {}

/**
 * The server does not take this client's key, or is not the one whose key was given: see to the keys, then try again. Of calls
 * that need a connection, and of others when the key was taken off the server's list meanwhile.
 */
export class Unauthorized extends RequestRefused {}

/** Not now (2xx): try again after retryAfterUs. */
export class Busy extends RequestRefused {}

/** The server took the request and failed at it (3xx). */
export class RequestFailed extends CallError {}

/** The budget is used up; a reply that comes later is ignored. */
export class DeadlineExceeded extends CallError {}

/** The call was cancelled, or its client closed. */
export class Cancelled extends CallError {}

/** A newer request of the same key took its place. */
export class Superseded extends CallError {}

const CLASSES = new Map([
  [Code.Unauthorized, Unauthorized],
  [Code.DeadlineExceeded, DeadlineExceeded],
  [Code.Cancelled, Cancelled],
  [Code.Superseded, Superseded],
]);

/** Return the error that an error reply stands for. */
export function errorOf(number, reason, details) {
  const code = knownCode(number);
  const kind = CLASSES.get(code) ?? (code >= Code.Internal ? RequestFailed : code >= Code.Busy ? Busy : RequestRefused);
  return new kind(code, reason, details);
}

/** Return a code that we know: an unknown one of a newer server becomes the plainest of its hundred. */
function knownCode(number) {
  if (Code[number] !== undefined) return number;
  return { 1: Code.NotSupported, 2: Code.Busy, 4: Code.Cancelled }[Math.floor(number / 100)] ?? Code.Internal;
}

/** Return the error of a call that found no server within its time; *why* is how the last connection ended. */
export function unreachable(endpoint, timeoutMs, why = '') {
  const last = why === '' ? '' : `, last: ${why}`;
  const cure = 'start one there with `slotline serve CONFIG`, or name another endpoint';
  return new ServerUnreachable(`${endpoint}: no server answered within ${Math.round(timeoutMs)} ms${last}; ${cure}`);
}

/** Return the error of a client whose keys, or the server's, are not the right ones. */
export function unauthorized(endpoint, reason) {
  return new Unauthorized(Code.Unauthorized, `${endpoint}: ${reason}`);
}
