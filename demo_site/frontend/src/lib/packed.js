// Text in an address: deflated, in the base64 that addresses allow.

/** Some programs cut longer addresses. */
export const LONGEST_PACKED = 16_000;

async function through(stream, bytes, most = Infinity) {
  const parts = [];
  let size = 0;
  for await (const part of readable(new Blob([bytes]).stream().pipeThrough(stream))) {
    size += part.length;
    if (size > most) throw new RangeError("the text is too long");
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

/** The packed text. */
export async function pack(text) {
  const packed = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(text));
  const base64 = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
  return base64.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The text of what `pack` made. An error if it cannot be read, or takes more than `most` bytes. */
export async function unpack(packed, most) {
  if (packed.length > LONGEST_PACKED) throw new RangeError("the packed text is too long");
  const bytes = Uint8Array.from(atob(packed.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
  return new TextDecoder("utf-8", { fatal: true }).decode(await through(new DecompressionStream("deflate-raw"), bytes, most));
}
