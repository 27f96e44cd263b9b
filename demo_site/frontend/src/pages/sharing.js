// A program in the part of an address behind the #: deflated, in the base64 that addresses allow.

/** More than this is no program to send in a link, and some programs cut longer addresses. */
export const LONGEST_LINK = 16_000;
const LONGEST_PROGRAM = 200_000;

const PREFIX = "code=";

async function through(stream, bytes, most = Infinity) {
  const parts = [];
  let size = 0;
  for await (const part of readable(new Blob([bytes]).stream().pipeThrough(stream))) {
    size += part.length;
    if (size > most) throw new RangeError("the program in the link is too long");
    parts.push(part);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Safari cannot iterate over streams. */
async function* readable(stream) {
  const reader = stream.getReader();
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** What stands behind the # for this program. */
export async function toHash(program) {
  const packed = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(program));
  const text = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
  return PREFIX + text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The program behind the #; null if there is none. An error if it cannot be read. */
export async function fromHash(hash) {
  const text = hash.replace(/^#/, "");
  if (!text.startsWith(PREFIX)) return null;
  if (text.length > LONGEST_LINK) throw new RangeError("the link is too long");
  const packed = atob(text.slice(PREFIX.length).replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const program = await through(new DecompressionStream("deflate-raw"), bytes, LONGEST_PROGRAM);
  return new TextDecoder("utf-8", { fatal: true }).decode(program);
}
