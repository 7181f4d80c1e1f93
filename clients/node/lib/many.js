// The requests of one inferMany: packed where they are small, paced so that the server's backlog takes them, results in order.

import { SlotlineError } from './errors.js';
import { MANY_BYTES, MANY_IN_FLIGHT, MAX_PACKED } from './limits.js';

export class Many {
  #start;
  #send;
  #limits;
  #outcomes = [];
  #pack = [];
  #packBytes = 0;
  #inFlight = [];
  #bytesInFlight = 0;

  /** *start* starts one request, *send* sends those of several calls as one message, *limits* returns the server's, 0 = none. */
  constructor({ start, send, limits }) {
    this.#start = start;
    this.#send = send;
    // Told by the server, perhaps after the first request has connected.
    this.#limits = limits;
  }

  /** Start one request, after waiting for room. */
  async add(inputs) {
    const mostInFlight = Math.min(MANY_IN_FLIGHT, this.#limits().maxInFlight || MANY_IN_FLIGHT);
    if (this.#inFlight.length >= mostInFlight || this.#bytesInFlight >= MANY_BYTES) await this.#makeRoom();
    let started;
    try {
      started = await this.#start(inputs);
    } catch (error) {
      if (!(error instanceof SlotlineError)) throw error;
      this.#outcomes.push(error);
      return;
    }
    const { call, parts, bytes } = started;
    const outcome = call.promise.catch((error) => error);
    this.#outcomes.push(outcome);
    this.#inFlight.push({ outcome, bytes });
    this.#bytesInFlight += bytes;
    if (parts.length > 1) {
      this.#send([call], parts);
      return;
    }
    const mostBytes = this.#limits().maxPayload || MANY_BYTES;
    if (this.#pack.length >= MAX_PACKED || this.#packBytes + bytes > mostBytes) this.#flush();
    this.#pack.push({ call, header: parts[0] });
    this.#packBytes += bytes;
  }

  /** Wait for all, and return what became of each, in order. */
  async finish() {
    this.#flush();
    return Promise.all(this.#outcomes);
  }

  /** Wait for the oldest requests, as many as a pack takes, so that the next packs are full. */
  async #makeRoom() {
    this.#flush();
    for (const { outcome, bytes } of this.#inFlight.splice(0, MAX_PACKED)) {
      await outcome;
      this.#bytesInFlight -= bytes;
    }
  }

  #flush() {
    // Not what a lost connection has ended meanwhile: its caller was told that it may have to be sent again.
    const pack = this.#pack.filter(({ call }) => !call.isEnded);
    this.#pack = [];
    this.#packBytes = 0;
    if (pack.length > 0)
      this.#send(
        pack.map(({ call }) => call),
        pack.map(({ header }) => header),
      );
  }
}
