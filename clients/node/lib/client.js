// The client: promises over one DEALER socket. Any number of calls may be in flight.
//
// Nothing is sent twice: when the connection or the server's life ends, every call in flight rejects with ConnectionLost, and the
// caller decides; the next call connects again, by a new socket.

import { setTimeout as sleep } from 'node:timers/promises';

import { Calls } from './calls.js';
import { Connection, CUT_SHORT } from './connection.js';
import {
  BadReply,
  Busy,
  Cancelled,
  ConnectionLost,
  DeadlineExceeded,
  RequestRefused,
  unauthorized,
  unreachable,
} from './errors.js';
import { Code, HealthScope, Kind } from './fb/slotline.js';
import { checkKeys } from './keys.js';
import { Many } from './many.js';
import { writeCancel, writeHealth, writeHello, writeRequest } from './writer.js';

// Between two tries of a server that ends each connection.
const RETRY_MS = 50;
// So many handshakes in a row that the server breaks off are no accident: it cannot read what is encrypted for another key.
const MAX_CUT_SHORT = 3;
const NO_LIMITS = { maxHeader: 0, maxPayload: 0, maxFrames: 0, maxInFlight: 0, defaultBudgetUs: 0, maxBudgetUs: 0 };

export class Client {
  #endpoint;
  #timeoutMs;
  #keys;
  #calls = new Calls();
  #connection;
  #connecting;
  #cutShort = 0;
  #why = '';
  #isClosed = false;
  #limits = NO_LIMITS;
  #epoch = 0n;

  /**
   * Make a client that the first call connects, so that it can be made before there is a server.
   *
   * timeoutMs is how long connecting, and a call that names no budget, may take. keys: {server, publicKey, secretKey}, for a server
   * with CURVE; readKeys() takes them from files. Throws BadKeys.
   */
  constructor(endpoint, { timeoutMs = 5_000, keys } = {}) {
    if (!(timeoutMs > 0 && timeoutMs < 1e9))
      throw new RangeError(`timeoutMs: expected more than 0 and less than 1e9, got ${timeoutMs}`);
    this.#endpoint = endpoint;
    this.#timeoutMs = timeoutMs;
    this.#keys = keys === undefined ? undefined : checkKeys(keys);
  }

  /**
   * Return a connected client; options are those of the constructor.
   *
   * Rejects with ServerUnreachable when nobody answers in time, Unauthorized when the server does not take this client's key or is
   * not the one whose key was given, BadKeys when a key is wrong, RequestRefused when the server does not take this client.
   */
  static async connect(endpoint, options = {}) {
    const client = new Client(endpoint, options);
    await client.#makeReady(client.#timeoutMs);
    return client;
  }

  /** The server's present life, a bigint: another one after a reconnect means that it was restarted. */
  get epoch() {
    return this.#epoch;
  }

  /** End what is in flight with Cancelled, and give the socket back; until then it keeps the process alive. */
  close() {
    this.#isClosed = true;
    this.#calls.cancelAll();
    this.#connection?.close();
    this.#connection = undefined;
  }

  /**
   * Send one request and return its result.
   *
   * Rejects with RequestRefused (Busy, Unauthorized), RequestFailed, DeadlineExceeded, ConnectionLost, BadReply, ServerUnreachable,
   * Cancelled or Superseded. When options.signal aborts, the call ends with Cancelled and the server is told. With options.onFailure
   * it never rejects: it returns that value instead, within the budget, whatever goes wrong; options.read, when given, makes the
   * value of a result, and what it throws counts as a failure.
   */
  async infer(model, inputs, options = {}) {
    const { onFailure, read = (result) => result, signal, ...others } = options;
    try {
      const { call, parts } = await this.#start(model, inputs, others, false);
      const unheard = this.#cancelOn(signal, call);
      if (!call.isEnded) this.#send([call], parts);
      return read(await call.promise.finally(unheard));
    } catch (error) {
      if (!('onFailure' in options)) throw error;
      return onFailure;
    }
  }

  /**
   * Send many requests, small ones packed up to 64 to a message, and return their results in order.
   *
   * At most 256 of them, or 16 MiB, are in flight at once, so that a lane's default backlog takes them. All are finished; then the
   * first error is thrown, or with options.returnErrors each stands in its result's place.
   */
  async inferMany(model, requests, { returnErrors = false, ...options } = {}) {
    const many = new Many({
      start: (inputs) => this.#start(model, inputs, options, true),
      send: (calls, parts) => this.#send(calls, parts),
      limits: () => this.#limits,
    });
    for (const inputs of requests) await many.add(inputs);
    const outcomes = await many.finish();
    const failed = returnErrors ? undefined : outcomes.find((outcome) => outcome instanceof Error);
    if (failed !== undefined) throw failed;
    return outcomes;
  }

  /** Return the server's state and how much it has to do. */
  health() {
    return this.#ask(HealthScope.Live, '');
  }

  /** Return whether the server, or one *model*, takes requests. */
  async ready(model = '') {
    return (await this.#ask(model === '' ? HealthScope.Ready : HealthScope.ModelReady, model)).ok;
  }

  async #ask(scope, model) {
    await this.#makeReady(this.#timeoutMs);
    const header = writeHealth(this.#calls.nextId, scope, model);
    const call = this.#calls.start('health', this.#timeoutMs, Kind.HealthReply);
    this.#send([call], [header]);
    return call.promise;
  }

  /** End *call* when *signal* aborts, and tell the server; return what ends the listening. */
  #cancelOn(signal, call) {
    if (signal === undefined) return () => {};
    const cancel = () => {
      if (this.#calls.cancel(call)) this.#connection?.send([writeCancel(call.id)], () => false);
    };
    if (signal.aborted) this.#calls.cancel(call);
    signal.addEventListener('abort', cancel, { once: true });
    return () => signal.removeEventListener('abort', cancel);
  }

  /** Start a call and return {call, parts, bytes}, not yet sent. */
  async #start(model, inputs, options, mayPack) {
    // Before connecting, which counts.
    const began = performance.now();
    const lastsMs = options.budgetUs ? options.budgetUs / 1_000 : this.#timeoutMs;
    const leftMs = () => lastsMs - (performance.now() - began);
    while (this.#connection === undefined || this.#connecting !== undefined) await this.#makeReady(leftMs());
    const budgetUs = this.#budgetUs(options.budgetUs ?? 0);
    const { maxInFlight } = this.#limits;
    if (maxInFlight > 0 && this.#calls.inFlight >= maxInFlight) {
      const reason = `max_in_flight: expected at most ${maxInFlight} calls at once, all are in use`;
      throw new Busy(Code.Busy, reason, { field: 'max_in_flight' });
    }
    const written = writeRequest({ id: this.#calls.nextId, model, inputs, options, budgetUs, mayPack }, this.#limits);
    return { call: this.#calls.start(model, leftMs()), ...written };
  }

  /**
   * Return the budget to be sent. One that is named above the server's limit is refused; without one the lane's default (0) holds,
   * unless this client would be gone before.
   */
  #budgetUs(budgetUs) {
    const most = this.#limits.maxBudgetUs || Number.MAX_SAFE_INTEGER;
    if (!Number.isSafeInteger(budgetUs) || budgetUs < 0 || budgetUs > most)
      throw new RequestRefused(Code.BadParam, `budget_us: expected 0 to ${most}, got ${budgetUs}`, { field: 'budget_us' });
    const timeoutUs = Math.max(1, Math.floor(this.#timeoutMs * 1_000));
    if (budgetUs > 0) return budgetUs;
    return timeoutUs >= this.#limits.defaultBudgetUs ? 0 : timeoutUs;
  }

  #send(calls, parts) {
    // A call whose connection was lost before its turn has ended already.
    this.#connection?.send(parts, () => calls.every((call) => call.isEnded));
  }

  /** See that there is a connection; waits no longer than *timeoutMs*. */
  async #makeReady(timeoutMs) {
    if (this.#isClosed) throw new Error('the client is closed: make another one');
    if (this.#connection !== undefined && this.#connecting === undefined) return;
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    const stop = new AbortController();
    const late = sleep(Math.max(1, timeoutMs), undefined, { signal: stop.signal }).then(() => {
      throw unreachable(this.#endpoint, timeoutMs, this.#why);
    });
    try {
      await Promise.race([this.#connecting, late]);
    } finally {
      stop.abort();
      // Whichever lost the race: its end is of no interest.
      late.catch(() => {});
      this.#connecting?.catch(() => {});
    }
  }

  /** Open a connection and say Hello, until the server answers or the client's timeout is up. */
  async #connect() {
    const until = performance.now() + this.#timeoutMs;
    this.#why = '';
    while (performance.now() < until && !this.#isClosed) {
      try {
        await this.#greet(until - performance.now());
        return;
      } catch (error) {
        this.#connection?.close(0);
        this.#connection = undefined;
        if (error instanceof ConnectionLost) {
          this.#why = error.message;
          if (this.#cutShort >= MAX_CUT_SHORT) throw unauthorized(this.#endpoint, CUT_SHORT);
          await sleep(RETRY_MS);
        } else if (!(error instanceof DeadlineExceeded)) {
          throw error;
        }
      }
    }
    if (this.#isClosed) throw new Cancelled(Code.Cancelled, 'the client was closed');
    throw unreachable(this.#endpoint, this.#timeoutMs, this.#why);
  }

  async #greet(lastsMs) {
    this.#connection = new Connection(this.#endpoint, {
      onMessage: (parts) => this.#receive(parts),
      onEnd: (end) => this.#lose(end),
      keys: this.#keys,
    });
    const header = writeHello(this.#calls.nextId);
    const call = this.#calls.start('hello', lastsMs, Kind.Welcome);
    this.#send([call], [header]);
    const { epoch, limits } = await call.promise;
    this.#epoch = epoch;
    this.#limits = limits;
  }

  #receive(parts) {
    try {
      this.#calls.receive(parts);
    } catch (error) {
      if (!(error instanceof BadReply)) throw error;
      this.#lose({ reason: error.message });
    }
  }

  /** End the connection and what is in flight on it. */
  #lose({ reason, isRefusal = false, isCutShort = false }) {
    this.#connection?.close(0);
    this.#connection = undefined;
    this.#cutShort = isCutShort ? this.#cutShort + 1 : 0;
    this.#calls.endAll((model) =>
      isRefusal
        ? unauthorized(this.#endpoint, reason)
        : new ConnectionLost(`${model}: ${this.#endpoint}: ${reason} with the call in flight`),
    );
  }
}
