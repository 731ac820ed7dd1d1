/** What this browser remembers for the user who is signed in; several may use the same browser. */

/** @param {string} name @returns {any} what was remembered, or null */
export function recall(name) {
  try {
    return JSON.parse(localStorage.getItem(keyOf(name)));
  } catch {
    return null;
  }
}

/** Remember a value, or forget it if it is null. @param {string} name @param {any} value */
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(keyOf(name));
    else localStorage.setItem(keyOf(name), JSON.stringify(value));
  } catch {
    // The browser keeps nothing for this page, or has no room: the page works without.
  }
}

function keyOf(name) {
  return `trainyard-${name}-${document.querySelector("[data-account]")?.dataset.account ?? ""}`;
}
