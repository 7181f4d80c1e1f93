// The Slotline client for Node: import this.

export { Client } from './client.js';
export {
  BadReply,
  Busy,
  CallError,
  Cancelled,
  ConnectionLost,
  DeadlineExceeded,
  RequestFailed,
  RequestRefused,
  ServerUnreachable,
  SlotlineError,
  Superseded,
} from './errors.js';
export { Code } from './fb/slotline.js';
export { encoded, strings, tensor } from './tensors.js';
