// The client: promises over one DEALER socket. Any number of calls may be in flight.
//
// Nothing is sent twice: when the connection or the server's life ends, every call in flight rejects with ConnectionLost, and the
// caller decides; the next call connects again, by a new socket.

import { setTimeout as sleep } from 'node:timers/promises';

import { Calls } from './calls.js';
import { Connection } from './connection.js';
import { BadReply, Busy, ConnectionLost, DeadlineExceeded, RequestRefused, ServerUnreachable } from './errors.js';
import { Code, Kind } from './fb/slotline.js';
import { Many } from './many.js';
import { unsigned, writeHello, writeRequest } from './writer.js';

// Between two tries of a server that ends each connection.
const RETRY_MS = 50;
const NO_LIMITS = { maxHeader: 0, maxPayload: 0, maxFrames: 0, maxInFlight: 0, maxBudgetUs: 0 };

export class Client {
  #endpoint;
  #timeoutMs;
  #calls = new Calls();
  #connection;
  #connecting;
  #isClosed = false;
  #limits = NO_LIMITS;
  #epoch = 0n;

  constructor(endpoint, timeoutMs) {
    if (!(timeoutMs > 0 && timeoutMs < 1e9))
      throw new RangeError(`timeoutMs: expected more than 0 and less than 1e9, got ${timeoutMs}`);
    this.#endpoint = endpoint;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Return a connected client.
   *
   * timeoutMs is how long connecting, and a call that names no budget, may take. Rejects with ServerUnreachable when nobody answers
   * in time, RequestRefused when the server does not take this client.
   */
  static async connect(endpoint, { timeoutMs = 5_000 } = {}) {
    const client = new Client(endpoint, timeoutMs);
    await client.#makeReady(timeoutMs);
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
   * Rejects with RequestRefused (Busy), RequestFailed, DeadlineExceeded, ConnectionLost, BadReply or ServerUnreachable. With
   * options.onFailure it never rejects: it returns that value instead, within the budget, whatever goes wrong; options.read, when
   * given, makes the value of a result, and what it throws counts as a failure.
   */
  async infer(model, inputs, options = {}) {
    const { onFailure, read = (result) => result, ...others } = options;
    try {
      const { call, parts } = await this.#start(model, inputs, others, false);
      this.#send([call], parts);
      return read(await call.promise);
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
      limits: this.#limits,
    });
    for (const inputs of requests) await many.add(inputs);
    const outcomes = await many.finish();
    const failed = returnErrors ? undefined : outcomes.find((outcome) => outcome instanceof Error);
    if (failed !== undefined) throw failed;
    return outcomes;
  }

  /** Start a call and return {call, parts, bytes}, not yet sent. */
  async #start(model, inputs, options, mayPack) {
    // Before connecting, which counts.
    const began = performance.now();
    const budgetUs = this.#budgetUs(options);
    const lastsMs = options.budgetUs === undefined ? this.#timeoutMs : budgetUs / 1_000;
    if (this.#connection === undefined || this.#connecting !== undefined) await this.#makeReady(lastsMs);
    const { maxInFlight } = this.#limits;
    if (maxInFlight > 0 && this.#calls.inFlight >= maxInFlight) {
      const reason = `max_in_flight: expected at most ${maxInFlight} calls at once, all are in use`;
      throw new Busy(Code.Busy, reason, { field: 'max_in_flight' });
    }
    const written = writeRequest({ id: this.#calls.nextId, model, inputs, options, budgetUs, mayPack }, this.#limits);
    const call = this.#calls.start(model, lastsMs - (performance.now() - began));
    return { call, ...written };
  }

  /** Return the budget to be sent: one that is named above the server's limit is refused, the client's timeout is cut to it. */
  #budgetUs({ budgetUs }) {
    const most = this.#limits.maxBudgetUs || Number.MAX_SAFE_INTEGER;
    if (budgetUs === undefined) return Math.max(1, Math.min(Math.floor(this.#timeoutMs * 1_000), most));
    if (!Number.isSafeInteger(budgetUs) || budgetUs < 1 || budgetUs > most) {
      throw new RequestRefused(Code.BadParam, `budget_us: expected 1 to ${most}, got ${budgetUs}`, { field: 'budget_us' });
    }
    return Number(unsigned(budgetUs, 'budget_us'));
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
      throw new ServerUnreachable(`${this.#endpoint}: no server answered within ${Math.round(timeoutMs)} ms`);
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
    let why = '';
    while (performance.now() < until && !this.#isClosed) {
      try {
        await this.#greet(until - performance.now());
        return;
      } catch (error) {
        this.#connection?.close(0);
        this.#connection = undefined;
        if (error instanceof ConnectionLost) {
          why = `, last: ${error.message}`;
          await sleep(RETRY_MS);
        } else if (!(error instanceof DeadlineExceeded)) {
          throw error;
        }
      }
    }
    throw new ServerUnreachable(`${this.#endpoint}: no server answered within ${this.#timeoutMs} ms${why}`);
  }

  async #greet(lastsMs) {
    this.#connection = new Connection(this.#endpoint, {
      onMessage: (parts) => this.#receive(parts),
      onEnd: (reason) => this.#lose(reason),
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
      this.#lose(error.message);
    }
  }

  /** End the connection and what is in flight on it. */
  #lose(reason) {
    this.#connection?.close(0);
    this.#connection = undefined;
    this.#calls.endAll((model) => new ConnectionLost(`${model}: ${this.#endpoint}: ${reason} with the call in flight`));
  }
}
