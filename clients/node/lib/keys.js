// The keys of a client, for a server with CURVE: read from files or given as text, and checked before anything is sent.
//
// The files are ZeroMQ certificates, such as `slotline keys` makes: NAME.pub has a public key, NAME.secret has both of a pair.

import { createPrivateKey, createPublicKey } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { getSystemErrorMap } from 'node:util';

import { capability } from 'zeromq';

import { BadKeys } from './errors.js';

// Z85 (ZeroMQ RFC 32): five characters for each four bytes, worth at most 2^32 - 1.
const Z85 = '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#';
const KEY_CHARS = 40;
const LINE = /^\s*(public-key|secret-key)\s*=\s*"([^"]*)"\s*$/;
// A key file has some 200 bytes; whatever is larger is something else.
const MAX_FILE_BYTES = 4_096;
const OTHERS = 0o007;
// What stands before the 32 bytes of a secret in the form that node:crypto reads (RFC 8410).
const PKCS8_X25519 = Buffer.from('302e020100300506032b656e04220420', 'hex');

/**
 * Return the keys in the server's public key file and in the client's own secret one, as a Client takes them.
 *
 * Throws BadKeys, whose text has the cure.
 */
export function readKeys(serverKeyFile, keyFile) {
  const server = keyOf(readKeyFile(serverKeyFile), 'public-key', serverKeyFile, 'name a .pub file that `slotline keys` made');
  const own = readKeyFile(keyFile);
  const cure = 'name the .secret file that `slotline keys` made';
  const publicKey = keyOf(own, 'public-key', keyFile, cure);
  const secretKey = keyOf(own, 'secret-key', keyFile, cure);
  if (own.mode & OTHERS)
    throw new BadKeys(`${keyFile}: every user of this machine may read this secret key: chmod 600 ${keyFile}`);
  return { server, publicKey, secretKey };
}

/** Return *keys* once all are keys, and the client's two belong together; throws BadKeys. */
export function checkKeys(keys) {
  if (!capability.curve) throw new BadKeys('keys: this build of zeromq has no CURVE: install one that has');
  const [server, publicKey, secretKey] = [keys?.server, keys?.publicKey, keys?.secretKey].map(decode);
  if (server === undefined)
    throw new BadKeys(`keys: server: expected ${KEY_CHARS} characters of Z85; readKeys() takes them from files`);
  if (publicKey === undefined || secretKey === undefined)
    throw new BadKeys(`keys: expected publicKey and secretKey, each ${KEY_CHARS} characters of Z85`);
  if (!publicOf(secretKey).equals(publicKey))
    throw new BadKeys('keys: the secret key does not belong to the public key: take both from one file');
  return keys;
}

/** Return the 32 bytes of a key in Z85, undefined when it is none. */
function decode(text) {
  if (typeof text !== 'string' || text.length !== KEY_CHARS) return undefined;
  const bytes = Buffer.alloc((KEY_CHARS / 5) * 4);
  for (let at = 0; at < KEY_CHARS; at += 5) {
    const digits = [...text.slice(at, at + 5)].map((char) => Z85.indexOf(char));
    const worth = digits.reduce((sum, digit) => sum * 85 + digit, 0);
    if (digits.includes(-1) || worth >= 2 ** 32) return undefined;
    bytes.writeUInt32BE(worth, (at / 5) * 4);
  }
  return bytes;
}

function publicOf(secret) {
  const key = createPrivateKey({ key: Buffer.concat([PKCS8_X25519, secret]), format: 'der', type: 'pkcs8' });
  return Buffer.from(createPublicKey(key).export({ format: 'jwk' }).x, 'base64url');
}

/** Return {keys, mode}: the keys in a file by the words before them, and the file's mode. */
function readKeyFile(path) {
  const { text, mode } = readSome(path);
  const lines = text.length > MAX_FILE_BYTES ? [] : text.toString().split('\n');
  const found = lines.map((line) => LINE.exec(line)).filter((match) => match !== null);
  return { keys: new Map(found.map(([, word, key]) => [word, key])), mode };
}

/** Return the first bytes of a file, one more than a key file may have, and its mode. */
function readSome(path) {
  let descriptor;
  try {
    // Not blocking: a pipe in its place must not stop the process.
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const text = Buffer.alloc(MAX_FILE_BYTES + 1);
    const { mode } = fstatSync(descriptor);
    let size = 0;
    for (let got = -1; got !== 0 && size < text.length; size += got) got = readSync(descriptor, text, size, text.length - size);
    return { text: text.subarray(0, size), mode };
  } catch (error) {
    if (error.errno === undefined) throw error;
    throw new BadKeys(`${path}: ${getSystemErrorMap().get(error.errno)?.[1] ?? error.code}: name a readable key file`);
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** Return one key of a file. A secret is never shown, not even a damaged one. */
function keyOf({ keys }, which, path, cure) {
  const key = keys.get(which);
  if (key === undefined) throw new BadKeys(`${path}: has no line ${which}: ${cure}`);
  if (decode(key) === undefined) throw new BadKeys(`${path}: its ${which} is not ${KEY_CHARS} characters of Z85: ${cure}`);
  return key;
}
