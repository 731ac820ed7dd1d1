/** Text that programs wrote: made safe to look at. */

const INVISIBLE = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu;
const HARMLESS = new Set(["\n", "\t", "\u200d", "\ufe0f"]);

const collator = new Intl.Collator("en", { numeric: true });

/** Compare texts as a person sorts them: key-9 before key-10. @returns {number} as `sort` wants it */
export function compareNames(one, other) {
  return collator.compare(one, other);
}

/** Replace characters that a reader cannot see, or that change the text around them, by visible ones. */
export function showInvisible(text) {
  return String(text).replace(INVISIBLE, (character) => {
    if (HARMLESS.has(character)) return character;
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    return code === 0x7f ? "\u2421" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}
