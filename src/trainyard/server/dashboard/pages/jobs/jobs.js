/** The list of jobs: keeps the view in the address, loads what it asks for, and shows what changes. */

import { element, replaceChildren } from "../../html.js";
import { getJson, listen } from "../../http.js";
import { recall, remember } from "../../remembered.js";
import { readState, writeState } from "../../state.js";
import { compareNames, showInvisible } from "../../text.js";
import { showToast } from "../../toast.js";
import { BulkBar, MAX_AT_ONCE } from "./bulk_bar.js";
import { columnOf } from "./cells.js";
import { ColumnPicker, MAX_COLUMNS } from "./column_picker.js";
import { FilterBox } from "./filter_box.js";
import { quote, valuesOf, withPart, withValues } from "./filter_text.js";
import { Overview } from "./overview.js";
import { JobTable } from "./table.js";

const DEFAULTS = { filter: "", sort: "", group: "", after: "", page: 1, columns: [], open: [], overview: false };
const FIRST_PAGE = { after: "", page: 1 };
const QUICK_FILTERS = { All: "", Waiting: "waiting", Running: "running", Completed: "completed", Failed: "failed", Stopped: "stopped" };
const GROUP_FIELDS = ["status", "kind", "user", "type", "image", "engine", "spot", "tuning", "failure"];
// Open groups are read again when the list changes, but not more often than this.
const GROUP_REFRESH_MS = 5000;
const BUSY_AFTER_MS = 200;
const CHOSEN_COLUMNS = "columns";
// The id of the group of jobs without a value.
const NO_VALUE = "-";

class JobsPage {
  constructor(data) {
    this.state = readState(DEFAULTS);
    /** The columns that are shown, whether they were chosen or suit the jobs. @type {string[]} */
    this.columns = data.columns;
    this.data = data;
    /** The first rows of open groups by the id of the group. @type {Map<string, {rows: object[], next: string | null}>} */
    this.groupPages = new Map();
    this.groupsReadAt = 0;
    /** The tokens of the pages before this one, as far as they were visited. @type {string[]} */
    this.visited = [];
    this.request = new AbortController();
    this.stopListening = () => {};
    this.streamProblem = "";
    this.names = null;
    this.overview = new Overview(
      { strip: byId("capacity"), details: byId("overview"), button: byId("overview-button") },
      {
        onToggle: (isOpen) => this.keep({ overview: isOpen }, { isNewEntry: false }),
        onShowWaiting: () => this.setFilter("status:waiting"),
      },
    );
    this.hasTable = byId("jobs") !== null;
    if (this.hasTable) this.makeTable();
  }

  start() {
    this.overview.setOpen(this.state.overview);
    if (this.hasTable) {
      addEventListener("popstate", () => this.goBack());
      const recalled = this.state.columns.length ? [] : recalledColumns();
      if (recalled.length) this.showColumns(recalled);
      this.show();
      if (this.state.open.length) this.readGroups();
      requestIdleCallback(() => this.offerGroups());
    }
    this.listen();
  }

  makeTable() {
    this.table = new JobTable(byId("jobs"), {
      onSort: (sort) => this.setFilter(withValues(this.state.filter, "sort", []), { sort }),
      onMoveColumn: (from, to) => this.picker.move(from, to),
      onSelect: () => this.bulk.refresh(),
      onToggleGroup: (id) => this.toggleGroup(id),
      onShowGroup: (id) => this.showGroup(id),
      onFilterTag: (key, value) => this.setFilter(withPart(this.state.filter, `tag:${quote(key)}=${quote(value)}`)),
    });
    this.bulk = new BulkBar(byId("bulk-bar"), {
      selected: () => [...this.table.selected.values()],
      matching: () => (this.data.groups ? null : this.data.total),
      onSelectAll: () => this.selectAll(),
      onClear: () => this.table.clearSelection(),
      onDone: (failed) => {
        for (const arn of [...this.table.selected.keys()]) if (!failed.has(arn)) this.table.selected.delete(arn);
        this.bulk.refresh();
        this.load();
      },
    });
    this.filter = new FilterBox(
      { input: byId("filter"), options: byId("filter-options"), problem: byId("filter-problem") },
      { onChange: (text) => this.setFilter(text), loadNames: () => this.loadNames() },
    );
    this.picker = new ColumnPicker(byId("columns"), {
      columns: () => [...this.columns],
      onChange: (chosen) => this.setColumns(chosen),
      loadNames: () => this.loadNames(),
    });
    for (const [word, status] of Object.entries(QUICK_FILTERS)) {
      const choose = () => this.setFilter(withValues(this.state.filter, "status", status ? [status] : []));
      byId("quick-filters").append(element`<button class="button" type="button" data-status=${status} onclick=${choose}>${word}</button>`);
    }
    byId("group").addEventListener("change", (event) => {
      this.groupPages.clear();
      this.change({ group: event.target.value, open: [], ...FIRST_PAGE });
    });
  }

  loadNames() {
    this.names ??= getJson("/-/jobs/columns").catch((error) => {
      this.names = null;
      throw error;
    });
    return this.names;
  }

  /** Keep a change of the view in the address. */
  keep(changes, { isNewEntry = true } = {}) {
    Object.assign(this.state, changes);
    writeState(changes, { defaults: DEFAULTS, isNewEntry });
  }

  change(changes) {
    if ("after" in changes && !changes.after) this.visited = [];
    this.keep(changes);
    this.load();
  }

  setFilter(text, more = {}) {
    this.filter.set(text);
    this.groupPages.clear();
    this.change({ filter: text, ...FIRST_PAGE, ...more });
  }

  /** @param {string[] | null} chosen null for those that suit the jobs */
  setColumns(chosen) {
    remember(CHOSEN_COLUMNS, chosen);
    this.showColumns(chosen);
  }

  showColumns(chosen) {
    const isMissing = chosen === null || chosen.some((key) => key.includes(":") && !this.columns.includes(key));
    this.keep({ columns: chosen ?? [] }, { isNewEntry: false });
    if (isMissing) {
      if (chosen) this.columns = chosen;
      this.groupPages.clear();
      this.load();
      return;
    }
    this.columns = chosen;
    this.show();
    this.listen();
  }

  /** Select the jobs of all pages, as many as can be changed at once. */
  async selectAll() {
    try {
      const { rows } = await getJson(`/-/jobs/list?${this.query({ columns: ["status"], after: "", limit: String(MAX_AT_ONCE) })}`);
      this.table.select(rows);
    } catch (error) {
      showToast(error.message, { kind: "error" });
    }
  }

  goBack() {
    this.state = readState(DEFAULTS);
    if (!this.state.columns.length) this.state.columns = recalledColumns();
    const known = this.visited.indexOf(this.state.after);
    this.visited = known < 0 ? [] : this.visited.slice(0, known);
    this.filter.set(this.state.filter);
    this.overview.setOpen(this.state.overview);
    this.groupPages.clear();
    this.load();
  }

  /** Load the page that the state describes, and show it with what is selected, sorted and focused as before. */
  async load() {
    this.request.abort();
    const { signal } = (this.request = new AbortController());
    const busy = setTimeout(() => byId("jobs").setAttribute("aria-busy", "true"), BUSY_AFTER_MS);
    try {
      this.data = await getJson(`/-/jobs/list?${this.query({ columns: this.state.columns })}`, { signal });
      this.columns = this.data.columns;
      this.data.total ??= this.totalBefore();
      this.filter.showProblem("");
      this.show();
      if (this.state.group) await this.readGroups();
    } catch (error) {
      // What is shown stays live.
      if (error.name !== "AbortError") this.showProblem(error);
      return;
    } finally {
      clearTimeout(busy);
      if (!signal.aborted) byId("jobs").removeAttribute("aria-busy");
    }
    this.listen();
  }

  showProblem(error) {
    // A filter that is wrong, or too much to sort or to group, is explained beside the filter.
    if (error.status >= 400 && error.status < 500) this.filter.showProblem(error.message);
    else showToast(error.message, { kind: "error" });
  }

  query({ columns = this.columns, ...more } = {}) {
    const { filter, sort, group, after } = this.state;
    const given = { filter, sort, group, after, columns: columns.map(encodeURIComponent).join(","), ...more };
    return new URLSearchParams(Object.entries(given).filter(([, value]) => value !== ""));
  }

  listen() {
    this.stopListening();
    this.streamProblem = "";
    const known = this.hasTable && !this.state.group ? this.table.revisions : [];
    this.stopListening = listen(`/-/jobs/live?${this.query({ known: known.join(",") })}`, {
      rows: (change) => {
        this.showStreamProblem("");
        this.apply(change);
      },
      capacity: (capacity) => this.overview.showCapacity(capacity),
      problem: ({ message }) => this.showStreamProblem(message),
    });
  }

  /** Say why rows no longer change, until they do again. */
  showStreamProblem(message) {
    if (this.hasTable && message !== this.streamProblem) this.filter.showProblem(message);
    this.streamProblem = message;
  }

  apply(change) {
    if (!this.hasTable) {
      if (change.order.length) location.reload();
      return;
    }
    Object.assign(this.data, { next: change.next, total: change.total ?? this.totalBefore(), groups: change.groups });
    if (this.state.group) {
      if (Date.now() - this.groupsReadAt > GROUP_REFRESH_MS) this.readGroups();
      else this.show();
      return;
    }
    const wasEmpty = this.table.entries.size === 0;
    if (wasEmpty !== (change.order.length === 0)) {
      this.data.rows = change.rows;
      this.show();
    } else if (this.table.apply(change)) this.data.rows = this.table.rows;
    else this.load();
    this.showTotal();
    this.bulk.refresh();
  }

  show() {
    const { group, open } = this.state;
    const sort = valuesOf(this.state.filter, "sort")[0] ?? this.state.sort;
    this.table.show({ columns: this.columns, sort, sections: group ? this.groupSections(open) : [this.wholeList()] });
    const isEmpty = !(group ? this.data.groups ?? [] : this.data.rows).length;
    byId("jobs").closest(".jobs-scroll").hidden = isEmpty;
    byId("nothing").hidden = !isEmpty || byId("filter-problem").hidden === false;
    if (isEmpty) this.showNothing();
    for (const button of byId("quick-filters").children) {
      const statuses = valuesOf(this.state.filter, "status");
      button.setAttribute("aria-pressed", String(button.dataset.status ? statuses.includes(button.dataset.status) : !statuses.length));
    }
    this.showGroupChoice();
    this.showTotal();
    this.showPager();
    this.picker.refresh();
  }

  /** The number of jobs on all pages, which only the first page tells. */
  totalBefore() {
    const { filter, after } = this.state;
    if (!after || this.known?.filter !== filter) return null;
    return this.known.total;
  }

  wholeList() {
    return { id: "", group: null, isOpen: true, rows: this.data.rows, more: false };
  }

  groupSections(open) {
    return (this.data.groups ?? []).map((group) => {
      const id = idOf(group);
      const found = this.groupPages.get(id);
      const isOpen = open.includes(id);
      return { id, group, isOpen, isLoading: isOpen && !found, rows: found?.rows ?? [], more: Boolean(found?.next) };
    });
  }

  showNothing() {
    const isSearchCut = this.data.next !== null;
    const title = isSearchCut ? "No job so far matches" : "No job matches";
    const text = isSearchCut ? "Only some of the jobs were searched. The next page continues." : "No job meets all parts of the filter.";
    const clear = element`<button class="button" type="button" onclick=${() => this.setFilter("")}>Clear the filter</button>`;
    replaceChildren(byId("nothing"), element`<p class="empty-title">${title}</p>`, element`<p>${text}</p>`, clear);
  }

  showTotal() {
    const { total, rows, next, groups } = this.data;
    if (total !== null) this.known = { filter: this.state.filter, total };
    const known = groups ? groups.reduce((sum, group) => sum + group.jobs, 0) : total;
    const count = known ?? (next === null && this.state.page === 1 ? rows.length : null);
    const text = count === null ? "" : count === 1 ? "1 job" : `${count.toLocaleString("en-US")} jobs`;
    if (byId("jobs-total").textContent !== text) byId("jobs-total").textContent = text;
  }

  showPager() {
    const { page, after, group } = this.state;
    const { next, rows } = this.data;
    const pager = byId("pager");
    pager.hidden = Boolean(group) || (!after && next === null);
    const previous = () => this.change({ after: this.visited.at(-1) ?? "", page: Math.max(1, page - 1) });
    const goOn = () => {
      this.visited.push(after);
      const visited = [...this.visited];
      this.change({ after: next, page: page + 1 });
      this.visited = visited;
      byId("jobs").closest(".jobs-scroll").scrollTop = 0;
    };
    const note = next !== null && rows.length && this.data.total === null ? `${rows.length} jobs of this page match` : "";
    replaceChildren(
      pager,
      element`<button class="button" type="button" disabled=${!after} onclick=${() => this.change(FIRST_PAGE)}>First</button>`,
      element`<button class="button" type="button" disabled=${!this.visited.length} onclick=${previous}>Previous</button>`,
      element`<span class="faint">${`Page ${page}`}${note ? ` · ${note}` : ""}</span>`,
      element`<button class="button" type="button" disabled=${next === null} onclick=${goOn}>Next</button>`,
    );
  }

  /** Offer what jobs can be grouped by; the names of tags and hyperparameters take a request. */
  async offerGroups() {
    try {
      this.offered = await this.loadNames();
    } catch {
      // The filter and the columns ask again, and say what is wrong.
      return;
    }
    this.showGroupChoice();
  }

  showGroupChoice() {
    const select = byId("group");
    const option = (value, text) => element`<option value=${value} selected=${value === this.state.group}>${showInvisible(text)}</option>`;
    const tags = (this.offered?.TagKeys ?? []).map(({ Key }) => Key).sort(compareNames).map((key) => option(`tag:${key}`, key));
    const parameters = [...(this.offered?.HyperParameters ?? [])].sort(compareNames).map((name) => option(`param:${name}`, name));
    const known = new Set(["", ...GROUP_FIELDS, ...[...tags, ...parameters].map(({ value }) => value)]);
    const other = known.has(this.state.group) ? [] : [option(this.state.group, this.state.group)];
    replaceChildren(
      select,
      option("", "Nothing"),
      GROUP_FIELDS.map((name) => option(name, columnOf(name).title)),
      other,
      tags.length ? element`<optgroup label="Tags">${tags}</optgroup>` : null,
      parameters.length ? element`<optgroup label="Hyperparameters">${parameters}</optgroup>` : null,
    );
  }

  toggleGroup(id) {
    const isOpen = this.state.open.includes(id);
    this.keep({ open: isOpen ? this.state.open.filter((each) => each !== id) : [...this.state.open, id] }, { isNewEntry: false });
    this.show();
    if (!isOpen && !this.groupPages.has(id)) this.readGroups([id]);
  }

  showGroup(id) {
    this.setFilter(withPart(this.state.filter, this.conditionOf(id)), { group: "", open: [] });
  }

  /** Read the first rows of open groups. */
  async readGroups(ids = this.state.open) {
    this.groupsReadAt = Date.now();
    const read = ids.map(async (id) => {
      const filter = withPart(this.state.filter, this.conditionOf(id));
      this.groupPages.set(id, await getJson(`/-/jobs/list?${this.query({ filter, group: "", after: "" })}`));
    });
    const results = await Promise.allSettled(read);
    for (const { reason } of results) if (reason) showToast(reason.message, { kind: "error" });
    this.show();
  }

  /** The part of a filter that the jobs of a group meet. */
  conditionOf(id) {
    const { group } = this.state;
    return id === NO_VALUE ? `-has:${quote(group)}` : `${quote(group)}=${quote(id.slice(1))}`;
  }
}

/** The columns that this user chose last, if any: a link without columns shows these. @returns {string[]} */
function recalledColumns() {
  const found = recall(CHOSEN_COLUMNS);
  return Array.isArray(found) ? found.filter((key) => typeof key === "string" && columnOf(key) !== null).slice(0, MAX_COLUMNS) : [];
}

/** The id of a group in the address: its value after a sign, because a value may be empty. */
function idOf(group) {
  return group.value === undefined || group.value === null ? NO_VALUE : `=${group.value}`;
}

function byId(id) {
  return document.getElementById(id);
}

new JobsPage(JSON.parse(byId("data").textContent)).start();
