"use strict";

const find = (id) => document.getElementById(id);

/** An element with text or other elements in it. Text is never read as HTML. */
function make(name, content = [], className = "") {
  const element = document.createElement(name);
  element.append(...[content].flat());
  if (className) element.className = className;
  return element;
}

/** A table; `columns` are headings, and a cell is text, a number or an element. */
function table(columns, rows, caption) {
  const alignment = (content) => (typeof content === "number" ? "number" : "");
  const cell = (content) => {
    const shown = typeof content === "number" ? content.toLocaleString("en") : content ?? "";
    return make("td", shown, alignment(content));
  };
  const head = make("tr", columns.map((column, index) => {
    const heading = make("th", column, alignment(rows[0]?.[index]));
    heading.scope = "col";
    return heading;
  }));
  const body = rows.map((cells) => make("tr", cells.map(cell)));
  const all = make("table", [make("thead", head), make("tbody", body)]);
  all.setAttribute("aria-label", caption);
  return make("div", all, "table");
}

/** Shows a section if there is something to show in it. */
function show(id, ...content) {
  const section = find(id);
  const shown = content.filter((part) => part !== null);
  section.hidden = shown.length === 0;
  const heading = section.querySelector("h2");
  const open = [...section.querySelectorAll("details")].map((details) => details.open);
  section.replaceChildren(heading, ...shown);
  section.querySelectorAll("details").forEach((details, index) => { details.open = open[index] ?? details.open; });
}

/** How long ago a time in seconds since the epoch was. */
const since = (time) => ago(Date.now() / 1000 - time);

function ago(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min`;
  return whole < 172800 ? `${Math.floor(whole / 3600)} h` : `${Math.floor(whole / 86400)} d`;
}

const note = (text, kind) => make("p", text, `note ${kind}`);

const last = (path) => path.slice(path.lastIndexOf("/") + 1);

async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${(await response.text()).trim()}`);
  return response.json();
}

/** Calls `update` every two seconds while the page is seen. */
async function repeat(update) {
  for (;;) {
    if (!document.hidden) {
      try {
        await update();
        find("connection").textContent = "";
      } catch (error) {
        find("connection").textContent = `No answer: ${error.message}`;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}
