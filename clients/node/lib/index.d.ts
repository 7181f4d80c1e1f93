/** Fixed-size datatypes of the Open Inference Protocol. */
export type FixedType =
  'BOOL' | 'UINT8' | 'UINT16' | 'UINT32' | 'UINT64' | 'INT8' | 'INT16' | 'INT32' | 'INT64' | 'FP16' | 'FP32' | 'FP64' | 'BF16';

/** One input of a request; made by tensor(), strings() or encoded(). */
export interface Input {
  readonly dtype: FixedType | 'BYTES' | 'ENCODED';
  readonly shape: number[];
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** One output: FP16 and BF16 are raw bits, BOOL is 0 or 1; BYTES are Buffers. Views of the reply where its layout allows that. */
export interface Output {
  readonly dtype: FixedType | 'BYTES' | 'ENCODED';
  readonly shape: number[];
  readonly bytes: Uint8Array;
  readonly data:
    | Uint8Array
    | Uint16Array
    | Uint32Array
    | BigUint64Array
    | Int8Array
    | Int16Array
    | Int32Array
    | BigInt64Array
    | Float32Array
    | Float64Array
    | Buffer[];
}

export type ParamValue = boolean | number | bigint | string;

/** The outputs of one request, and what the server says about it. timing: one row a stage, in pipeline order. */
export interface Result {
  readonly model: string;
  readonly version: string;
  readonly outputs: Record<string, Output>;
  readonly params: Record<string, ParamValue>;
  readonly timing: { queueUs: number; runUs: number; batch: number }[];
  readonly retries: number;
  readonly backlogUs: number;
}

export interface Options {
  /**
   * Time left for the answer, which is also how long the call lasts. 0 or left out: the lane's default budget holds, and the call
   * lasts as long as the client's timeout; a client with less patience than that asks for no more than it has.
   */
  budgetUs?: number;
  /** Instrument, camera or stream; echoed. */
  key?: number | bigint;
  /** What the key means to the server: nothing, one after the other, or that only the newest, or the newest latestN, count. */
  keyPolicy?: 'OneByOne' | 'Ordered' | 'LatestOnly' | 'LatestN';
  latestN?: number;
  /** Capture time by the caller's own clock; echoed. */
  bornUs?: number | bigint;
  /** False = never run it twice when a worker dies under it. Default true. */
  idempotent?: boolean;
  /** False = inputs of 64 KiB and more are lent until the call has ended, not copied; change none before. Default true. */
  copy?: boolean;
  version?: string;
  /** Names wanted; default: all. */
  outputs?: string[];
  params?: Record<string, ParamValue>;
  /** 0 = the lane's default level, 1 = highest. */
  priority?: number;
  /** Refuse NaN and Inf in the inputs. */
  finite?: boolean;
  clientRequestId?: string;
  /** Send the xxh64 of the payload, so that the server refuses what was damaged on the way. Costs some 40 ms a megabyte. */
  checksum?: boolean;
}

export interface Cancellable {
  /** When it aborts, the call ends with Cancelled and the server is told. */
  signal?: AbortSignal;
}

/** For a server with CURVE: its public key, and the client's own pair; each 40 characters of Z85. */
export interface Keys {
  server: string;
  publicKey: string;
  secretKey: string;
}

export interface Settings {
  /** How long connecting, and a call that names no budget, may take; default 5,000. */
  timeoutMs?: number;
  keys?: Keys;
}

/** What a server says of its state: 'starting', 'serving', 'degraded' or 'draining', and how much it has to do. */
export interface Health {
  readonly ok: boolean;
  readonly state: string;
  readonly queued: number;
  readonly inFlight: number;
}

export interface FailSafe<Value> {
  /** What infer returns, within the budget, whatever goes wrong. */
  onFailure: Value;
  /** Makes the value of a result; what it throws counts as a failure. */
  read: (result: Result) => Value;
}

/** A connection to a server. Any number of calls may be in flight; when the connection ends, each rejects with ConnectionLost. */
export class Client {
  /** The first call connects, so that a client can be made before there is a server. */
  constructor(endpoint: string, settings?: Settings);
  static connect(endpoint: string, settings?: Settings): Promise<Client>;
  readonly epoch: bigint;
  infer(model: string, inputs: Record<string, Input>, options?: Options & Cancellable): Promise<Result>;
  infer<Value>(model: string, inputs: Record<string, Input>, options: Options & Cancellable & FailSafe<Value>): Promise<Value>;
  inferMany(model: string, requests: Record<string, Input>[], options?: Options): Promise<Result[]>;
  inferMany(
    model: string,
    requests: Record<string, Input>[],
    options: Options & { returnErrors: true },
  ): Promise<(Result | SlotlineError)[]>;
  health(): Promise<Health>;
  ready(model?: string): Promise<boolean>;
  close(): void;
}

/** Take a client's keys from the server's public key file and the client's own secret one. */
export function readKeys(serverKeyFile: string, keyFile: string): Keys;

export function tensor(
  dtype: FixedType,
  shape: readonly number[],
  values: ArrayBufferView | readonly number[] | readonly bigint[],
): Input;
export function strided(
  dtype: FixedType,
  shape: readonly number[],
  memory: ArrayBufferView,
  strides: readonly number[],
  options?: { first?: number; bigEndian?: boolean },
): Input;
export function strings(shape: readonly number[], elements: readonly (string | Uint8Array)[]): Input;
export function encoded(content: Uint8Array, contentType?: string): Input;

/** Names of the codes by number, and numbers by name. */
export const Code: Record<string, number> & Record<number, string>;

export class SlotlineError extends Error {}
export class ServerUnreachable extends SlotlineError {}
export class ConnectionLost extends SlotlineError {}
export class BadKeys extends SlotlineError {}
export class BadReply extends SlotlineError {}
export class CallError extends SlotlineError {
  readonly code: number;
  readonly codeName: string;
  readonly reason: string;
  readonly field: string;
  readonly retryAfterUs: number;
  readonly stage: string;
}
export class RequestRefused extends CallError {}
export class Unauthorized extends RequestRefused {}
export class Busy extends RequestRefused {}
export class RequestFailed extends CallError {}
export class DeadlineExceeded extends CallError {}
export class Cancelled extends CallError {}
export class Superseded extends CallError {}
