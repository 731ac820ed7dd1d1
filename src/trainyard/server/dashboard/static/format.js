/** Numbers, sizes, durations, money and times as people read them. The same forms as the server's filters. */

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** @param {number | null | undefined} value @returns {string} five significant digits; whole numbers with separators */
export function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return Number(value.toPrecision(5)).toExponential().replace("e+", "e");
  return String(Number(value.toPrecision(5)));
}

/** @param {number} size in bytes */
export function formatBytes(size) {
  let unit = 0;
  while (size >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(size)} B` : `${Number(size.toPrecision(3))} ${UNITS[unit]}`;
}

/** @param {number} seconds @returns {string} the two largest units, such as "2 h 5 min" */
export function formatDuration(seconds) {
  if (seconds < 0) return `−${formatDuration(-seconds)}`;
  if (seconds < 1e-3) return `${Number((seconds * 1e6).toPrecision(3))} µs`;
  if (seconds < 1) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number} amount @param {string} currency such as "USD" */
export function formatMoney(amount, currency = "USD") {
  const digits = amount !== 0 && Math.abs(amount) < 0.1 ? 4 : 2;
  return `${amount.toFixed(digits)} ${currency}`;
}

/** @param {Date | string | number} moment @returns {string} in the reader's time zone */
export function formatTime(moment) {
  return new Date(moment).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "medium" });
}

/** @param {Date | string | number} moment @returns {string} such as "5 min ago" */
export function formatRelativeTime(moment) {
  const seconds = (Date.now() - new Date(moment).getTime()) / 1000;
  const ago = Math.abs(seconds);
  const [count, unit] =
    ago < 60 ? [ago, "s"] : ago < 3600 ? [ago / 60, "min"] : ago < 172800 ? [ago / 3600, "h"] : [ago / 86400, "d"];
  if (ago < 5) return "just now";
  const text = `${Math.floor(count)} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}
