// The checksum of a request's payload: xxh64 with seed 0.

const PRIME1 = 11400714785074694791n;
const PRIME2 = 14029467366897019727n;
const PRIME3 = 1609587929392839161n;
const PRIME4 = 9650029242287828579n;
const PRIME5 = 2870177450012600261n;
const BLOCK_BYTES = 32;

// Engines compute these as machine words, as long as each result is cut to 64 bits at once.
const word = (value) => BigInt.asUintN(64, value);
const turned = (value, by) => word(word(value << by) | (value >> (64n - by)));
const round = (lane, value) => word(turned(word(lane + word(value * PRIME2)), 31n) * PRIME1);

/** Return the xxh64 of the bytes of *parts*, one behind the other, as a bigint. */
export function checksumOf(parts) {
  const bytes = parts.length === 1 ? parts[0] : Buffer.concat(parts);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const blocks = bytes.length - (bytes.length % BLOCK_BYTES);
  let hash = blocks > 0 ? ofBlocks(view, blocks) : PRIME5;
  hash = word(hash + BigInt(bytes.length));
  let at = blocks;
  for (; bytes.length - at >= 8; at += 8)
    hash = word(word(turned(hash ^ round(0n, view.getBigUint64(at, true)), 27n) * PRIME1) + PRIME4);
  for (; bytes.length - at >= 4; at += 4)
    hash = word(word(turned(hash ^ word(BigInt(view.getUint32(at, true)) * PRIME1), 23n) * PRIME2) + PRIME3);
  for (; at < bytes.length; at++) hash = word(turned(hash ^ word(BigInt(bytes[at]) * PRIME5), 11n) * PRIME1);
  hash = word((hash ^ (hash >> 33n)) * PRIME2);
  hash = word((hash ^ (hash >> 29n)) * PRIME3);
  return hash ^ (hash >> 32n);
}

function ofBlocks(view, end) {
  let [one, two, three, four] = [word(PRIME1 + PRIME2), PRIME2, 0n, word(-PRIME1)];
  for (let at = 0; at < end; at += BLOCK_BYTES) {
    one = round(one, view.getBigUint64(at, true));
    two = round(two, view.getBigUint64(at + 8, true));
    three = round(three, view.getBigUint64(at + 16, true));
    four = round(four, view.getBigUint64(at + 24, true));
  }
  const sum = word(turned(one, 1n) + turned(two, 7n) + turned(three, 12n) + turned(four, 18n));
  return [one, two, three, four].reduce((hash, lane) => word(word((hash ^ round(0n, lane)) * PRIME1) + PRIME4), sum);
}
