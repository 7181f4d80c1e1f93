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
const NO_SERVER = 'what listens there is no Slotline server';
// What a wrong key of the server looks like, and little else.
export const CUT_SHORT =
  'the server broke off the handshake: see whether the server key is its public key, and whether it uses keys at all';
const MECHANISM_MISMATCH = 'ERR_ZMTP_MECHANISM_MISMATCH';

export class Connection {
  #socket;
  #outbox = [];
  #isSending = false;
  #onMessage;
  #onEnd;
  #hasKeys;

  /**
   * Connect. onMessage(parts) is called for each message, onEnd({reason, isRefusal, isCutShort}) once when the connection has ended by
   * itself: isRefusal when the server does not take this client and will not the next time, isCutShort when it broke off a
   * handshake with keys without a word. *keys*: for a server with CURVE.
   */
  constructor(endpoint, { onMessage, onEnd, keys }) {
    this.#onMessage = onMessage;
    this.#onEnd = onEnd;
    this.#hasKeys = keys !== undefined;
    const heartbeat = endpoint.startsWith('tcp:')
      ? { heartbeatInterval: HEARTBEAT_MS, heartbeatTimeout: HEARTBEAT_TIMEOUT_MS }
      : {};
    // Replies are bounded by the calls in flight. With a mark, one that arrived might not be seen before the connection's end.
    const options = { linger: LINGER_MS, reconnectInterval: RECONNECT_MS, receiveHighWaterMark: 0, ...heartbeat };
    if (keys !== undefined)
      Object.assign(options, { curveServerKey: keys.server, curvePublicKey: keys.publicKey, curveSecretKey: keys.secretKey });
    this.#socket = new Dealer(options);
    this.#watch(this.#socket.events);
    try {
      this.#socket.connect(endpoint);
    } catch (error) {
      this.close(0);
      throw new ServerUnreachable(`${endpoint}: cannot be connected to (${error.message}); ${cureOf(endpoint)}`);
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
    for await (const event of events) {
      const end = endOf(event, this.#hasKeys);
      if (end !== undefined) {
        // Those that came before the end are not lost.
        while (!this.#socket.closed && this.#socket.readable) await setImmediate();
        this.#onEnd(end);
        return;
      }
    }
  }

  #endUnlessClosed(error) {
    if (!this.#socket.closed) this.#onEnd({ reason: error.message });
  }
}

/** Return how a connection has ended, when *event* says so. */
function endOf({ type, error }, hasKeys) {
  switch (type) {
    case 'disconnect':
      return { reason: 'the server closed the connection' };
    case 'handshake:error:auth': {
      const cure = 'have it put into its curve.clients directory';
      return { reason: `the server does not have this client's public key on its list: ${cure}`, isRefusal: true };
    }
    case 'handshake:error:protocol': {
      if (error?.code !== MECHANISM_MISMATCH) return { reason: NO_SERVER };
      const withKeys = 'the server there uses no keys: give none, or name another endpoint';
      const without = 'the server takes clients with keys only: give the client keys';
      return { reason: hasKeys ? withKeys : without, isRefusal: true };
    }
    case 'handshake:error:other':
      // What a wrong key of the server looks like, or another mechanism when the server hangs up before its greeting is read. But
      // so does a server that ends just then.
      if (hasKeys) return { reason: CUT_SHORT, isCutShort: true };
      return { reason: `${NO_SERVER}, or one that takes clients with keys only` };
    default:
      return undefined;
  }
}

/** Return what would have been right instead of an *endpoint* that is none. */
function cureOf(endpoint) {
  const form = 'expected ipc://PATH with at most 107 bytes or tcp://HOST:PORT';
  if (endpoint === '' || endpoint.includes('://')) return form;
  return `${form}; did you mean ${/^[^/]+:\d+$/.test(endpoint) ? 'tcp' : 'ipc'}://${endpoint}?`;
}
