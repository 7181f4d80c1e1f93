// The Slotline client for Node: import this.

export { Client } from './client.js';
export {
  BadKeys,
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
  Unauthorized,
} from './errors.js';
export { Code } from './fb/slotline.js';
export { readKeys } from './keys.js';
export { encoded, strided, strings, tensor } from './tensors.js';
