"use strict";

const find = (id) => document.getElementById(id);

/** An element with text or other elements in it. Text is never read as HTML. */
function make(name, content = [], className = "") {
  const element = document.createElement(name);
  element.append(...[content].flat());
  if (className) element.className = className;
  return element;
}

/** Changes the text of an element; what is selected in equal text stays selected. */
function setText(element, text) {
  if (element.textContent === text) return;
  if (element.firstChild instanceof Text && element.childNodes.length === 1) element.firstChild.data = text;
  else element.textContent = text;
}

/** Whether somebody reads or uses an element, which then must not move. */
function isHeld(element) {
  const selection = getSelection();
  return element.matches(":focus-within, :hover")
    || element.querySelector("details[open]") !== null
    || (selection.type === "Range" && selection.containsNode(element, true));
}

/**
 * Makes the children of an element those of `items` by their keys: `create` returns a child, `update` changes it. Children that
 * exist are not replaced, so that focus, selection and open details stay.
 */
function patch(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.key, child]));
  const children = items.map((item) => {
    const key = keyOf(item);
    const child = known.get(key) ?? create(item);
    known.delete(key);
    child.key = key;
    update(child, item);
    return child;
  });
  known.forEach((child) => child.remove());
  children.forEach((child, index) => {
    const present = parent.children[index];
    if (present !== child) parent.insertBefore(child, present ?? null);
  });
}

const count = (number) => number.toLocaleString("en", { maximumFractionDigits: 1 });

const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

const show = (value) => (typeof value === "number" ? count(value) : value ?? "");

/** A time in seconds since the epoch. */
const clock = (time) => new Date(time * 1000).toLocaleTimeString("en", { hourCycle: "h23" });

/** How long ago a time in seconds since the epoch was. */
function since(time) {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 - time));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

const last = (path) => path.slice(path.lastIndexOf("/") + 1);

const names = new Intl.Collator("en", { numeric: true });

/** The number of rows that a table shows; a search finds the others. */
const MAX_ROWS = 100;

/**
 * A table of items that is searched and sorted. `columns` have a title, the `value` of an item and optionally the `level` of that
 * value. The first column has the name. Rows are sorted again unless somebody uses the table.
 */
class Table {
  constructor(parent, label, columns, sorted = 0) {
    Object.assign(this, { columns, sorted, items: [], text: "", order: [] });
    const headings = columns.map(({ title }, index) => {
      const button = make("button", title);
      button.addEventListener("click", () => {
        this.sorted = index;
        this.sort();
        this.show();
      });
      const heading = make("th", button);
      heading.scope = "col";
      return heading;
    });
    this.head = make("tr", headings);
    this.body = make("tbody");
    const table = make("table", [make("thead", this.head), this.body]);
    table.setAttribute("aria-label", label);
    this.box = make("div", table, "box");
    this.box.tabIndex = 0;
    this.rest = make("p", "", "faint");
    parent.append(this.box, this.rest);
  }

  /** Shows items whose name or another text contains `text`. */
  update(items, text = "") {
    const isNew = text !== this.text || this.order.length === 0;
    Object.assign(this, { items, text });
    if (isNew || !isHeld(this.box)) this.sort();
    this.show();
  }

  sort() {
    const { value } = this.columns[this.sorted];
    // Large numbers come first, and missing ones last.
    const compare = (a, b) => ([a, b].some((value) => typeof value === "number") ? (b ?? -1) - (a ?? -1) : names.compare(a ?? "", b ?? ""));
    const text = this.text.toLowerCase();
    const contains = (item) => this.columns.some((column) => String(column.value(item) ?? "").toLowerCase().includes(text));
    const found = text ? this.items.filter(contains) : [...this.items];
    this.order = found.sort((a, b) => compare(value(a), value(b))).map((item) => this.columns[0].value(item));
    [...this.head.children].forEach((heading, index) => {
      const isNumber = found.some((item) => typeof this.columns[index].value(item) === "number");
      heading.className = isNumber ? "number" : "";
      if (index === this.sorted) heading.ariaSort = isNumber ? "descending" : "ascending";
      else heading.removeAttribute("aria-sort");
    });
  }

  show() {
    const name = this.columns[0].value;
    const items = new Map(this.items.map((item) => [name(item), item]));
    const shown = this.order.filter((key) => items.has(key)).slice(0, MAX_ROWS).map((key) => items.get(key));
    const create = () => make("tr", this.columns.map(() => make("td", make("span"))));
    patch(this.body, shown, name, create, (row, item) => {
      this.columns.forEach(({ value, level }, index) => {
        const [cell, content] = [row.children[index], value(item)];
        setText(cell.firstChild, show(content));
        const name = [typeof content === "number" ? "number" : "", content && level ? level(item) : ""].join(" ").trim();
        if (cell.className !== name) cell.className = name;
      });
    });
    const more = this.order.length - shown.length;
    setText(this.rest, more > 0 ? `${count(more)} more; search for a part of a name` : shown.length ? "" : "none");
  }
}

/** Shows the state of a process, in the title of the page, too, and the problems that are its reasons. */
function showState(state, problems, name) {
  const more = problems.length > 1 ? ` and ${problems.length - 1} more` : "";
  // Causes are below.
  const text = problems.length ? `${problems[0].text.split(": ")[0]}${more}` : "nothing fails";
  document.body.classList.remove("gone");
  document.title = `${state}: ${text} · ${name}`;
  find("state").className = state;
  setText(find("summary"), `${state.toUpperCase()}: ${text}`);
  patch(find("problems"), problems, (problem) => `${problem.kind} ${problem.name}`, problemItem, updateProblem);
}

const problemItem = () => make("li", [make("b"), make("span"), make("div", "", "faint")]);

/** Shows a problem, since when it exists, and which rules it hits. */
function updateProblem(item, problem) {
  const { level, text, since: start, last: end, is_over: isOver, failed, calls, rules = [], rule_count: all } = problem;
  const failures = failed ? `${calls ? `${count(failed)} of ${count(calls)}` : plural(failed, "time")}, ` : "";
  const time = isOver ? `${clock(start)} to ${clock(end)}` : `since ${clock(start)}, for ${since(start)}`;
  item.className = isOver ? "" : level;
  setText(item.children[0], text);
  setText(item.children[1], start ? ` (${failures}${time})` : "");
  const more = all > rules.length ? ` and ${count(all - rules.length)} more` : "";
  setText(item.children[2], rules.length ? `hit: ${rules.join(", ")}${more}` : "");
}

async function get(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(5000) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${(await response.text()).trim()}`);
  return response.json();
}

/** Calls `update` every two seconds while the page is seen, and shows when there is no answer. */
async function repeat(name, update) {
  let answered = Date.now() / 1000;
  for (;;) {
    if (!document.hidden) {
      try {
        await update();
        answered = Date.now() / 1000;
      } catch (error) {
        document.body.classList.add("gone");
        find("state").className = "red";
        setText(find("summary"), `No answer since ${clock(answered)}, for ${since(answered)}: ${error.message}. All below is old.`);
        document.title = `no answer · ${name}`;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
