/**
 * Scrolls through any number of rows, of which only those to be seen are in the document.
 *
 * The browser scrolls a tall empty element, over which the rows stick to the view. Up to `MAX_HEIGHT` a pixel of it is a
 * pixel of the log; a longer log is scaled down, and the wheel and keys move by rows.
 */

const ROW = 19;
const MAX_HEIGHT = 8_000_000;

export class Scroller {
  /** @param {{view: HTMLElement, space: HTMLElement, window: HTMLElement, rows: HTMLElement, makeRow: (place: number) => HTMLElement, isStale: (place: number, row: HTMLElement) => boolean, onView: (first: number, last: number) => void}} options */
  constructor(options) {
    Object.assign(this, options);
    this.total = 0;
    // The row at the top, from 0, with the part of it that is scrolled away.
    this.top = 0;
    this.isAtEnd = false;
    this.frame = 0;
    this.kept = new Map();
    this.view.addEventListener("scroll", () => this.onScroll(), { passive: true });
    this.view.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    this.view.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.resize()).observe(this.view);
  }

  get height() {
    return this.view.clientHeight;
  }

  get isScaled() {
    return this.total * ROW > MAX_HEIGHT;
  }

  get visible() {
    return Math.max(1, Math.floor(this.height / ROW));
  }

  get lastTop() {
    return Math.max(0, this.total - this.height / ROW);
  }

  get maxScroll() {
    return Math.max(0, this.space.offsetHeight - this.height);
  }

  setTotal(total) {
    this.total = total;
    this.resize();
  }

  resize() {
    this.space.style.height = `${Math.max(this.height, Math.min(this.total * ROW, MAX_HEIGHT))}px`;
    this.window.style.height = `${this.height}px`;
    this.scrollTo(this.isAtEnd ? this.lastTop : Math.min(this.top, this.lastTop), this.isAtEnd);
  }

  /** Show a row at the top, or as low as the end allows. @param {number} top from 0 */
  scrollTo(top, isAtEnd = false) {
    this.top = Math.min(Math.max(0, top), this.lastTop);
    this.isAtEnd = isAtEnd || (this.total > 0 && this.top >= this.lastTop);
    const scroll = this.isScaled ? (this.lastTop ? (this.top / this.lastTop) * this.maxScroll : 0) : this.top * ROW;
    this.expected = Math.round(Math.min(scroll, this.maxScroll));
    this.view.scrollTop = this.expected;
    this.draw();
  }

  /** Show a row a third down from the top. @param {number} place from 1 */
  show(place) {
    this.scrollTo(place - 1 - Math.floor(this.visible / 3));
  }

  isShown(place) {
    return place - 1 >= this.top && place <= this.top + this.visible - 1;
  }

  /** Build all rows again, because the same lines look different. */
  redraw() {
    this.kept.clear();
    this.draw();
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const first = Math.floor(this.top);
    const count = Math.min(this.total - first, this.visible + 2);
    const rows = [];
    const kept = new Map();
    for (let place = first + 1; place <= first + count; place += 1) {
      const before = this.kept.get(place);
      const row = before && !this.isStale(place, before) ? before : this.makeRow(place);
      if (row.dataset.waiting === undefined) kept.set(place, row);
      rows.push(row);
    }
    this.kept = kept;
    this.place(rows);
    // At the end the last row is at the bottom, however high wrapped rows are.
    const overflow = this.rows.offsetHeight - this.window.clientHeight;
    const cut = this.isAtEnd ? Math.max(0, overflow) : (this.top - first) * (rows[0]?.offsetHeight ?? ROW);
    this.rows.style.transform = `translateY(${-cut}px)`;
    this.onView(first + 1, first + count);
  }

  /** Put rows into the document. Those that stay are not touched: a click on one that was moved would be lost. */
  place(rows) {
    const kept = new Set(rows);
    for (const row of [...this.rows.children]) if (!kept.has(row)) row.remove();
    let next = this.rows.firstElementChild;
    for (const row of rows) {
      if (row === next) next = next.nextElementSibling;
      else this.rows.insertBefore(row, next);
    }
  }

  onScroll() {
    const scroll = this.view.scrollTop;
    if (Math.abs(scroll - (this.expected ?? -1)) < 1.5) return;
    this.expected = null;
    this.top = this.isScaled ? (scroll / Math.max(1, this.maxScroll)) * this.lastTop : scroll / ROW;
    this.isAtEnd = scroll >= this.maxScroll - 1;
    this.onMove?.();
    this.draw();
  }

  onWheel(event) {
    if (!this.isScaled || event.ctrlKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 1 : event.deltaMode === 2 ? this.visible : 1 / ROW;
    this.moveBy(event.deltaY * unit);
  }

  onKey(event) {
    if (event.target !== this.window || !this.isScaled || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = { ArrowDown: 1, ArrowUp: -1, PageDown: this.visible - 1, PageUp: 1 - this.visible, " ": this.visible - 1 }[event.key];
    if (rows === undefined) return;
    event.preventDefault();
    this.moveBy(rows);
  }

  moveBy(rows) {
    this.scrollTo(this.top + rows);
    this.onMove?.();
  }
}
