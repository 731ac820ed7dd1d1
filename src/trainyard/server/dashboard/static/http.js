/** Requests to the yard: JSON, and events that come live. */

/** An answer that refuses or fails: the yard's code and message. */
export class ApiError extends Error {
  constructor(code, message, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** What the page waits for: answers, and the first events of streams. @type {Set<Promise<any>>} */
const awaited = new Set();
// A stream that opened and has said nothing since then has nothing to say yet.
const FIRST_EVENT_MS = 1000;

/** @param {string} address @param {{signal?: AbortSignal}} options @returns {Promise<any>} */
export function getJson(address, { signal } = {}) {
  return noteAwaited(send(address, { headers: { accept: "application/json" }, signal }).then(readAnswer));
}

/** Whether something that the page asked for has not come yet. */
export function isLoading() {
  return awaited.size > 0 || document.readyState !== "complete";
}

/** Wait until everything that the page asked for has come, or could not, or a time is over. @param {number} limitMs */
export async function waitUntilLoaded(limitMs) {
  const until = Date.now() + limitMs;
  do {
    await Promise.race([Promise.allSettled([...awaited]), pause(until - Date.now())]);
    // The page draws what came, and may ask for more.
    await pause(50);
  } while (isLoading() && Date.now() < until);
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function noteAwaited(answer) {
  const settle = () => awaited.delete(answer);
  awaited.add(answer);
  answer.then(settle, settle);
  return answer;
}

/** Change something. @param {string} address @param {object} value @returns {Promise<any>} */
export async function postJson(address, value = {}) {
  const headers = { accept: "application/json", "content-type": "application/json", "x-csrf-token": csrfToken() };
  return readAnswer(await send(address, { method: "POST", headers, body: JSON.stringify(value) }));
}

/**
 * Receive events until the returned function is called. The browser connects again by itself; the head of the page
 * shows the state of the connection.
 *
 * A page that nobody sees is not connected: browsers open at most six connections to a server, for all their tabs
 * together. When it is seen again, it continues after the last event that had an id.
 * @param {string} address @param {Object<string, (value: any) => void>} handlers by the name of the event
 * @returns {() => void}
 */
export function listen(address, handlers) {
  const stream = {};
  let source = null;
  let lastId = "";
  let noteFirst = () => {};
  const connect = () => {
    source = new EventSource(continued(address, lastId));
    noteAwaited(new Promise((resolve) => (noteFirst = resolve)));
    source.onopen = () => {
      showLiveState(stream, "live");
      setTimeout(noteFirst, FIRST_EVENT_MS);
    };
    source.onerror = (event) => {
      showLiveState(stream, event.target.readyState === EventSource.CLOSED ? "ended" : "reconnecting");
      noteFirst();
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        lastId = event.lastEventId || lastId;
        handle(JSON.parse(event.data), event.lastEventId);
        noteFirst();
      });
    }
    // The server says that nothing follows. Without it, the browser would ask again.
    source.addEventListener("end", close);
  };
  const disconnect = () => {
    source?.close();
    source = null;
    noteFirst();
    showLiveState(stream, null);
  };
  const follow = () => {
    if (document.hidden) disconnect();
    else if (source === null) connect();
  };
  const close = () => {
    document.removeEventListener("visibilitychange", follow);
    disconnect();
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  return close;
}

function continued(address, lastId) {
  return lastId ? `${address}${address.includes("?") ? "&" : "?"}${new URLSearchParams({ "last-event-id": lastId })}` : address;
}

const liveStates = new Map();
const LIVE_WORDS = { live: "Live", reconnecting: "Reconnecting", ended: "Disconnected" };

function showLiveState(source, state) {
  if (state === null) liveStates.delete(source);
  else liveStates.set(source, state);
  const shown = ["ended", "reconnecting", "live"].find((each) => [...liveStates.values()].includes(each));
  const place = document.querySelector("[data-live-state]");
  if (!place) return;
  place.hidden = shown === undefined;
  place.dataset.liveState = shown ?? "";
  place.textContent = LIVE_WORDS[shown] ?? "";
}

async function send(address, options) {
  try {
    return await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("Unreachable", "The yard does not answer. Is it running? The page will work again once it is.", 0);
  }
}

async function readAnswer(response) {
  if (response.ok) return response.status === 204 ? null : response.json();
  let problem = {};
  try {
    problem = (await response.json()).error ?? {};
  } catch {
    // Not an answer of the yard's, but of a proxy, for example.
  }
  if (response.status === 401) location.assign(`/-/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  const message = problem.message ?? `The yard answered with status ${response.status}.`;
  throw new ApiError(problem.code ?? String(response.status), message, response.status);
}

function csrfToken() {
  return document.querySelector('meta[name="csrf-token"]')?.content ?? "";
}
