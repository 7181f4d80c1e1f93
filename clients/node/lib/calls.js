// The calls of one client: which are in flight, and how each ended. No socket; only timers for the deadlines.

import { BadReply, Cancelled, DeadlineExceeded } from './errors.js';
import { Code, Flag, Kind } from './fb/slotline.js';
import { messageOf, readFailure, readHealth, readResult, readWelcome } from './reader.js';
import { idIfReadable, verify } from './verify.js';

// The longest time that a timer takes; a longer budget ends after it.
const MAX_TIMER_MS = 2 ** 31 - 1;

export class Calls {
  #lastId = 0;
  #calls = new Map();

  get inFlight() {
    return this.#calls.size;
  }

  get nextId() {
    return this.#lastId + 1;
  }

  /** Start a call with nextId and return it. *lastsMs*: until its deadline. *answer*: the kind of reply that is its result. */
  start(model, lastsMs, answer = Kind.InferReply) {
    const call = { id: ++this.#lastId, model, answer, isEnded: false };
    call.promise = new Promise((resolve, reject) => Object.assign(call, { resolve, reject }));
    const expire = () =>
      this.#fail(call, new DeadlineExceeded(Code.DeadlineExceeded, `${model}: no answer within the call's budget`));
    call.timer = setTimeout(expire, Math.min(Math.max(1, lastsMs), MAX_TIMER_MS));
    this.#calls.set(call.id, call);
    return call;
  }

  /** End the calls that one message answers; throws BadReply when it is not known which call that was. */
  receive([header, ...rest]) {
    const message = this.#read(header);
    if (message === undefined) return;
    if (!(message.route().flags() & Flag.Packed)) {
      this.#take(message, rest);
      return;
    }
    this.#take(message, []);
    for (const part of rest) {
      const other = this.#read(part);
      if (other !== undefined) this.#take(other, []);
    }
  }

  /** End every call in flight with the error that *errorOf* makes of its model's name. */
  endAll(errorOf) {
    for (const call of [...this.#calls.values()]) this.#fail(call, errorOf(call.model));
  }

  /** End a call that its caller cancels; false when it had ended by itself. */
  cancel(call) {
    if (call.isEnded) return false;
    this.#fail(call, new Cancelled(Code.Cancelled, `${call.model}: cancelled by its caller`));
    return true;
  }

  /** End every call because its client is closed. */
  cancelAll() {
    this.endAll((model) => new Cancelled(Code.Cancelled, `${model}: the client was closed`));
  }

  /** Return the message of a header; undefined when it is unsound, after its call was told. */
  #read(header) {
    try {
      verify(header);
    } catch (error) {
      if (!(error instanceof BadReply)) throw error;
      const call = this.#calls.get(Number(idIfReadable(header) ?? 0n));
      if (call === undefined) throw error;
      this.#fail(call, new BadReply(`${call.model}: ${error.message}`));
      return undefined;
    }
    return messageOf(header);
  }

  /** End the call that one verified header answers; a late reply has none. */
  #take(message, frames) {
    const call = this.#calls.get(Number(message.route().requestId()));
    if (call === undefined) return;
    try {
      const answer = answerOf(message, frames, call);
      if (answer instanceof Error) this.#fail(call, answer);
      else this.#end(call).resolve(answer);
    } catch (error) {
      if (!(error instanceof BadReply)) throw error;
      this.#fail(call, new BadReply(`${call.model}: ${error.message}`));
    }
  }

  #fail(call, error) {
    this.#end(call).reject(error);
  }

  #end(call) {
    clearTimeout(call.timer);
    call.isEnded = true;
    this.#calls.delete(call.id);
    return call;
  }
}

function answerOf(message, frames, call) {
  const route = message.route();
  if (route.payloadFrames() !== frames.length)
    throw new BadReply('not a valid reply: payload_frames is not the number of frames');
  if (route.kind() === Kind.Error) return readFailure(message);
  if (route.kind() !== call.answer) throw new BadReply(`not a valid reply: a message of kind ${route.kind()}`);
  if (call.answer === Kind.Welcome) return readWelcome(message);
  return call.answer === Kind.HealthReply ? readHealth(message) : readResult(message, frames);
}
