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
  /** Time left for the answer, which is also how long the call lasts; default: the client's timeout. */
  budgetUs?: number;
  /** Instrument, camera or stream; echoed. */
  key?: number | bigint;
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
}

export interface FailSafe<Value> {
  /** What infer returns, within the budget, whatever goes wrong. */
  onFailure: Value;
  /** Makes the value of a result; what it throws counts as a failure. */
  read: (result: Result) => Value;
}

/** A connection to a server. Any number of calls may be in flight; when the connection ends, each rejects with ConnectionLost. */
export class Client {
  private constructor();
  static connect(endpoint: string, options?: { timeoutMs?: number }): Promise<Client>;
  readonly epoch: bigint;
  infer(model: string, inputs: Record<string, Input>, options?: Options): Promise<Result>;
  infer<Value>(model: string, inputs: Record<string, Input>, options: Options & FailSafe<Value>): Promise<Value>;
  inferMany(model: string, requests: Record<string, Input>[], options?: Options): Promise<Result[]>;
  inferMany(
    model: string,
    requests: Record<string, Input>[],
    options: Options & { returnErrors: true },
  ): Promise<(Result | SlotlineError)[]>;
  close(): void;
}

export function tensor(
  dtype: FixedType,
  shape: readonly number[],
  values: ArrayBufferView | readonly number[] | readonly bigint[],
): Input;
export function strings(shape: readonly number[], elements: readonly (string | Uint8Array)[]): Input;
export function encoded(content: Uint8Array, contentType?: string): Input;

/** Names of the codes by number, and numbers by name. */
export const Code: Record<string, number> & Record<number, string>;

export class SlotlineError extends Error {}
export class ServerUnreachable extends SlotlineError {}
export class ConnectionLost extends SlotlineError {}
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
export class Busy extends RequestRefused {}
export class RequestFailed extends CallError {}
export class DeadlineExceeded extends CallError {}
export class Cancelled extends CallError {}
export class Superseded extends CallError {}
