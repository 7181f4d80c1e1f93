// Proves that a reply's header is a sound FlatBuffer of infer.fbs before generated code reads it: that code checks nothing.
//
// Nothing is read before its bounds are known, and the work is bounded by the header's size, not by what it claims.

import { BadReply } from './errors.js';
import { Body } from './fb/slotline.js';
import { MAX_HEADER_BYTES } from './limits.js';

const IDENTIFIER = Buffer.from('SLT1');
const ROUTE_BYTES = 56;
const TRACE_BYTES = 32;
const STAGE_TIME_BYTES = 12;
// Builders may share strings, so twice the header's size is allowed; more only comes from a header made to burn time.
const WORK_PER_BYTE = 2;
const NODE_COST = 8;

// A field: its bytes in the table, and what lies behind it. Scalars and structs have nothing behind them.
const inPlace = (width) => ({ width });
const offsetTo = (check, required = false) => ({ width: 4, check, required });
const vectorOf = (itemBytes) => offsetTo((walk, at) => walk.vector(at, itemBytes));
const tablesOf = (fields) =>
  offsetTo((walk, at) => {
    const count = walk.vector(at, 4);
    for (let index = 0; index < count; index++) walk.table(walk.target(at + 4 + 4 * index), fields);
  });
const tableOf = (fields) => offsetTo((walk, at) => walk.table(at, fields));
const string = offsetTo((walk, at) => walk.string(at));
const requiredString = { ...string, required: true };

// The fields of each table by their ids.
const LEASE_REF = [4, 4, 4, 8].map(inPlace);
const TENSOR = [
  requiredString,
  inPlace(1),
  inPlace(1),
  vectorOf(8),
  inPlace(2),
  inPlace(8),
  vectorOf(1),
  tableOf(LEASE_REF),
  string,
];
const PARAM = [requiredString, inPlace(1), inPlace(8), inPlace(8), string];
const INFER_OUT = [string, string, tablesOf(TENSOR), tablesOf(PARAM), vectorOf(STAGE_TIME_BYTES), inPlace(1), inPlace(4)];
const FAILURE = [inPlace(2), string, inPlace(8), string, string];
const LIMITS = [4, 8, 2, 4, 8, 8].map(inPlace);
const WELCOME = [string, inPlace(8), tableOf(LIMITS), string];
const HEALTH_OUT = [inPlace(1), string, inPlace(4), inPlace(4)];
const BODIES = {
  [Body.InferOut]: INFER_OUT,
  [Body.Failure]: FAILURE,
  [Body.WelcomeBody]: WELCOME,
  [Body.HealthOut]: HEALTH_OUT,
};
const MESSAGE = [{ width: ROUTE_BYTES, required: true }, inPlace(TRACE_BYTES), string, inPlace(1), { width: 4 }];
const BODY_TYPE_ID = 3;
const BODY_ID = 4;

/** Throw BadReply unless *header* is sound and has one of the bodies that a client is sent. */
export function verify(header) {
  checkFrame(header);
  const walk = new Walk(header);
  const at = walk.target(0);
  const places = walk.table(at, MESSAGE);
  const fields = places[BODY_TYPE_ID] ? BODIES[header[places[BODY_TYPE_ID]]] : undefined;
  ensure(fields !== undefined && places[BODY_ID] > 0, 'no body that a client is sent');
  walk.table(walk.target(places[BODY_ID]), fields);
}

/** Return the request id of a header that need not be sound elsewhere, so that its call can be told; undefined if unreadable. */
export function idIfReadable(header) {
  try {
    checkFrame(header);
    const walk = new Walk(header);
    const [route] = walk.fields(walk.target(0), MESSAGE);
    return route > 0 ? header.readBigUInt64LE(route) : undefined;
  } catch (error) {
    if (error instanceof BadReply) return undefined;
    throw error;
  }
}

function checkFrame(header) {
  ensure(header.length >= 12 && header.length <= MAX_HEADER_BYTES, `a header of ${header.length} bytes`);
  ensure(header.subarray(4, 8).equals(IDENTIFIER), `no ${IDENTIFIER} message`);
}

function ensure(holds, otherwise) {
  if (!holds) throw new BadReply(`not a valid reply: ${otherwise}`);
}

/** One pass over one header. Positions count from its first byte. */
class Walk {
  constructor(header) {
    this.header = header;
    this.workLeft = header.length * WORK_PER_BYTE;
  }

  /** Return the position to which the offset at *where* points, proven to hold 4 bytes. */
  target(where) {
    const at = where + this.header.readUInt32LE(where);
    ensure(at > where && at + 4 <= this.header.length, `the offset at byte ${where} leaves the header`);
    return at;
  }

  /** Return the position of each field of the table at *at* that we know, 0 for one that is not there. */
  fields(at, fields) {
    const { header } = this;
    const vtable = at - header.readInt32LE(at);
    ensure(vtable >= 0 && vtable + 4 <= header.length, `the vtable of the table at byte ${at} leaves the header`);
    const vtableBytes = header.readUInt16LE(vtable);
    const tableBytes = header.readUInt16LE(vtable + 2);
    ensure(vtableBytes >= 4 && vtable + vtableBytes <= header.length, `the vtable at byte ${vtable} has a wrong size`);
    ensure(tableBytes >= 4 && at + tableBytes <= header.length, `the table at byte ${at} has a wrong size`);
    this.work(tableBytes);
    return fields.map(({ width }, id) => {
      const offset = 6 + 2 * id <= vtableBytes ? header.readUInt16LE(vtable + 4 + 2 * id) : 0;
      ensure(offset === 0 || (offset >= 4 && offset + width <= tableBytes), `a field of the table at byte ${at} leaves it`);
      return offset === 0 ? 0 : at + offset;
    });
  }

  /** Check the table at *at* with all behind it, and return the positions of its fields. */
  table(at, fields) {
    const places = this.fields(at, fields);
    places.forEach((where, id) => {
      ensure(where > 0 || !fields[id].required, 'a required field is not there');
      if (where > 0 && fields[id].check !== undefined) fields[id].check(this, this.target(where));
    });
    return places;
  }

  /** Check the vector at *at* and return its element count. */
  vector(at, itemBytes) {
    const count = this.header.readUInt32LE(at);
    ensure(at + 4 + count * itemBytes <= this.header.length, `${count} elements at byte ${at} leave the header`);
    this.work(count * itemBytes);
    return count;
  }

  string(at) {
    const count = this.vector(at, 1);
    ensure(this.header[at + 4 + count] === 0, `the string at byte ${at} has no zero byte at its end`);
  }

  work(bytes) {
    this.workLeft -= NODE_COST + bytes;
    ensure(this.workLeft >= 0, 'too many shared parts');
  }
}
