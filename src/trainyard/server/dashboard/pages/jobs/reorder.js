/** Lets a person drag the items of a list to another place, by mouse or finger. */

const MIN_PIXELS = 6;

/**
 * @param {HTMLElement} list
 * @param {{items: string, handle?: string, axis: "x" | "y", onMove: (from: number, to: number) => void}} options
 *   `items` and `handle` are selectors; `to` is the place in the list without the dragged item
 */
export function makeReorderable(list, { items, handle = items, axis, onMove }) {
  list.addEventListener("pointerdown", (start) => {
    const item = start.target.closest(items);
    if (!item || !start.target.closest(handle) || start.button !== 0) return;
    // A finger on something without a handle scrolls.
    if (handle === items && start.pointerType !== "mouse") return;
    const drag = { item, list, items, axis, from: axis === "x" ? start.clientX : start.clientY, isMoving: false, place: -1 };
    const move = (event) => follow(drag, axis === "x" ? event.clientX : event.clientY);
    const end = (event) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      finish(drag, event.type === "pointerup", onMove);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  });
}

function follow(drag, at) {
  if (!drag.isMoving && Math.abs(at - drag.from) < MIN_PIXELS) return;
  drag.isMoving = true;
  drag.item.classList.add("is-dragged");
  const others = [...drag.list.querySelectorAll(drag.items)].filter((each) => each !== drag.item);
  const next = others.findIndex((each) => at < middle(each, drag.axis));
  drag.place = next < 0 ? others.length : next;
  for (const [number, each] of others.entries()) {
    each.classList.toggle("drop-before", number === drag.place);
    each.classList.toggle("drop-after", number === others.length - 1 && drag.place === others.length);
  }
}

function finish(drag, isDropped, onMove) {
  if (!drag.isMoving) return;
  const all = [...drag.list.querySelectorAll(drag.items)];
  for (const each of all) each.classList.remove("is-dragged", "drop-before", "drop-after");
  // The release of the button is a click as well, which would sort by the column.
  const ignore = (event) => event.stopPropagation();
  addEventListener("click", ignore, { capture: true, once: true });
  setTimeout(() => removeEventListener("click", ignore, { capture: true }));
  if (isDropped && all.indexOf(drag.item) !== drag.place) onMove(all.indexOf(drag.item), drag.place);
}

function middle(item, axis) {
  const box = item.getBoundingClientRect();
  return axis === "x" ? box.left + box.width / 2 : box.top + box.height / 2;
}
