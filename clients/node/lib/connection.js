// One connection: a DEALER socket that is used until its connection ends, and the events that tell when.

import { setImmediate } from 'node:timers/promises';

import { Dealer } from 'zeromq';

import { ServerUnreachable } from './errors.js';

// Until the server is there; afterwards a connection that ends is never used again.
const RECONNECT_MS = 50;
// What was just sent may still leave when a client closes.
const LINGER_MS = 200;
// A peer that is silent this long over TCP is gone. Long, because a server that was merely stopped for a while is not.
const HEARTBEAT_MS = 1_000;
const HEARTBEAT_TIMEOUT_MS = 10_000;
const ENDS = new Map([
  ['disconnect', 'the server closed the connection'],
  ['handshake:error:protocol', 'what listens there is no Slotline server'],
  ['handshake:error:auth', 'what listens there is no Slotline server'],
  ['handshake:error:other', 'what listens there is no Slotline server'],
]);

export class Connection {
  #socket;
  #outbox = [];
  #isSending = false;
  #onMessage;
  #onEnd;

  /** Connect. onMessage(parts) is called for each message, onEnd(reason) once when the connection has ended by itself. */
  constructor(endpoint, { onMessage, onEnd }) {
    this.#onMessage = onMessage;
    this.#onEnd = onEnd;
    const heartbeat = endpoint.startsWith('tcp:')
      ? { heartbeatInterval: HEARTBEAT_MS, heartbeatTimeout: HEARTBEAT_TIMEOUT_MS }
      : {};
    // Replies are bounded by the calls in flight. With a mark, one that arrived might not be seen before the connection's end.
    this.#socket = new Dealer({ linger: LINGER_MS, reconnectInterval: RECONNECT_MS, receiveHighWaterMark: 0, ...heartbeat });
    this.#watch(this.#socket.events);
    try {
      this.#socket.connect(endpoint);
    } catch (error) {
      this.close(0);
      throw new ServerUnreachable(
        `${endpoint}: cannot be connected to (${error.message}); expected ipc://PATH or tcp://HOST:PORT`,
      );
    }
    this.#receive();
  }

  /** Send one message when its turn comes, unless *isStale* says then that nobody waits for it any more. */
  send(parts, isStale) {
    this.#outbox.push({ parts, isStale });
    if (!this.#isSending) this.#sendAll();
  }

  /** Give the socket back; what is not sent after *lingerMs* is dropped. */
  close(lingerMs = LINGER_MS) {
    this.#onMessage = () => {};
    this.#onEnd = () => {};
    this.#outbox = [];
    this.#socket.linger = lingerMs;
    this.#socket.close();
  }

  async #sendAll() {
    this.#isSending = true;
    try {
      while (this.#outbox.length > 0) {
        const { parts, isStale } = this.#outbox.shift();
        if (!isStale()) await this.#socket.send(parts);
      }
    } catch (error) {
      this.#endUnlessClosed(error);
    }
    this.#isSending = false;
  }

  async #receive() {
    try {
      for await (const parts of this.#socket) this.#onMessage(parts);
    } catch (error) {
      this.#endUnlessClosed(error);
    }
  }

  async #watch(events) {
    for await (const { type } of events) {
      if (ENDS.has(type)) {
        // Those that came before the end are not lost.
        while (!this.#socket.closed && this.#socket.readable) await setImmediate();
        this.#onEnd(ENDS.get(type));
        return;
      }
    }
  }

  #endUnlessClosed(error) {
    if (!this.#socket.closed) this.#onEnd(error.message);
  }
}
