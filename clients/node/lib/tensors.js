// Tensors as a caller gives and gets them, and the packed form of BYTES. No header layout here.

import { DType } from './fb/slotline.js';

// The array of each datatype. BOOL is 0 or 1 as uint8; FP16 and BF16 are their raw bits; ENCODED is the blob's bytes.
const ARRAYS = {
  BOOL: Uint8Array,
  UINT8: Uint8Array,
  UINT16: Uint16Array,
  UINT32: Uint32Array,
  UINT64: BigUint64Array,
  INT8: Int8Array,
  INT16: Int16Array,
  INT32: Int32Array,
  INT64: BigInt64Array,
  FP16: Uint16Array,
  FP32: Float32Array,
  FP64: Float64Array,
  BF16: Uint16Array,
  ENCODED: Uint8Array,
};

if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1) {
  throw new Error('tensors travel little-endian and are not converted here');
}

/** Return the bytes of one element; 0 for BYTES and ENCODED, which have no fixed size. */
export function itemBytes(dtype) {
  return dtype === 'BYTES' || dtype === 'ENCODED' ? 0 : ARRAYS[dtype].BYTES_PER_ELEMENT;
}

/**
 * Return an input of a request.
 *
 * @param dtype - a name of the Open Inference Protocol, such as 'FP32'
 * @param shape - whole numbers; [] is a scalar
 * @param values - the datatype's array, bytes (Buffer, Uint8Array), or plain numbers (bigints for 64-bit integers); C order
 */
export function tensor(dtype, shape, values) {
  const type = ARRAYS[dtype];
  if (type === undefined || dtype === 'ENCODED') throw new TypeError(`dtype: expected a fixed-size datatype, got ${dtype}`);
  if (ArrayBuffer.isView(values)) {
    if (!(values instanceof type) && !(values instanceof Uint8Array)) {
      throw new TypeError(`${dtype}: expected a ${type.name} or bytes, got a ${values.constructor.name}`);
    }
    return make(dtype, shape, bytesOf(values));
  }
  return make(dtype, shape, bytesOf(type.from(values)));
}

/**
 * Copy an array that does not lie in C order into an input: a picture with padded rows, a part of one, a transposed matrix.
 *
 * @param memory - a Buffer, typed array or DataView that has it
 * @param strides - bytes from one element to the next along each dimension, negative ones included
 * @param options - first: the byte where the first element is; bigEndian: whether the values' bytes are to be turned about
 */
export function strided(dtype, shape, memory, strides, { first = 0, bigEndian = false } = {}) {
  const item = ARRAYS[dtype] === undefined ? 0 : itemBytes(dtype);
  if (item === 0 || strides.length !== shape.length)
    throw new TypeError(`${dtype}: expected a fixed-size datatype and one stride a dimension`);
  const from = bytesOf(memory);
  const count = shape.reduce((product, dim) => product * dim, 1);
  const to = Buffer.alloc(count * item);
  const index = shape.map(() => 0);
  for (let at = 0; at < to.length; at += item) {
    const start = first + index.reduce((sum, step, dim) => sum + step * strides[dim], 0);
    if (start < 0 || start + item > from.length) throw new RangeError(`${dtype}: an element outside of the memory given`);
    from.copy(to, at, start, start + item);
    if (bigEndian) to.subarray(at, at + item).reverse();
    for (let dim = shape.length - 1; dim >= 0 && ++index[dim] === shape[dim]; dim--) index[dim] = 0;
  }
  return make(dtype, shape, to);
}

/** Return an input of byte strings (BYTES); texts are sent as UTF-8. */
export function strings(shape, elements) {
  return make('BYTES', shape, packBytes(elements));
}

/** Return an input that is one encoded blob: the bytes of a picture's file, or a text. */
export function encoded(content, contentType = '') {
  return { ...make('ENCODED', [1], bytesOf(content)), contentType };
}

function make(dtype, shape, bytes) {
  return { dtype, shape: [...shape], bytes, contentType: '' };
}

/** Return elements in the protocol's binary form: each a little-endian u32 length and its bytes. */
export function packBytes(elements) {
  const parts = [];
  for (const element of elements) {
    const bytes = Buffer.from(element);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(bytes.length);
    parts.push(length, bytes);
  }
  return Buffer.concat(parts);
}

/** Return the elements of the binary form as views of it; throws RangeError unless it holds exactly *count*. */
export function unpackBytes(packed, count) {
  const buffer = Buffer.from(packed.buffer, packed.byteOffset, packed.byteLength);
  const elements = [];
  let at = 0;
  for (let index = 0; index < count; index++) {
    if (buffer.length - at < 4) throw new RangeError('BYTES: a length is cut off');
    const end = at + 4 + buffer.readUInt32LE(at);
    if (end > buffer.length) throw new RangeError('BYTES: an element is cut off');
    elements.push(buffer.subarray(at + 4, end));
    at = end;
  }
  if (at !== buffer.length) throw new RangeError('BYTES: more bytes than elements');
  return elements;
}

/** Return the bytes of one output as its datatype's array: a view, or a copy where the reply lays them out misaligned. */
export function viewOf(dtype, bytes) {
  const type = ARRAYS[dtype];
  const isAligned = bytes.byteOffset % type.BYTES_PER_ELEMENT === 0;
  const { buffer, byteOffset, byteLength } = isAligned ? bytes : Uint8Array.from(bytes);
  return new type(buffer, byteOffset, byteLength / type.BYTES_PER_ELEMENT);
}

/** Return the wire's number of a datatype's name, undefined when there is none. */
export function dtypeNumber(name) {
  return ARRAYS[name] !== undefined || name === 'BYTES' ? DType[name] : undefined;
}

function bytesOf(view) {
  return Buffer.from(view.buffer, view.byteOffset, view.byteLength);
}
