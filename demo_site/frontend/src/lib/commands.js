// Words of commands that a page shows.

/** A word that no shell takes apart. */
export function quoted(word) {
  return /^[\w./:-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
