/** A chart of the last 15 minutes: a line for each measure. */
class Chart {
  constructor(title, lines, unit) {
    Object.assign(this, { unit, value: make("b") });
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 180 40");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    this.svg = svg;
    this.paths = lines.map((line) => {
      const path = document.createElementNS(svg.namespaceURI, "path");
      path.setAttribute("class", line);
      svg.append(path);
      return path;
    });
    this.title = make("span", title);
    find("charts").append(make("figure", [make("figcaption", [this.title, this.value]), svg]));
  }

  /** Shows the values of each line, the oldest first; null is a gap. */
  update(lines) {
    const max = Math.max(1, ...lines.flat());
    lines.forEach((values, line) => {
      let gap = true;
      const points = values.map((value, index) => {
        const [command, x] = [gap || value === null ? "M" : "L", 180 - values.length + 1 + index];
        gap = value === null;
        return gap ? "" : `${command}${x} ${(38 - (36 * value) / max).toFixed(1)}`;
      });
      this.paths[line].setAttribute("d", points.join(""));
    });
    const now = lines.map((values) => (values.at(-1) == null ? "–" : this.unit(values.at(-1)))).join(" / ");
    setText(this.value, now);
    this.svg.setAttribute("aria-label", `${this.title.textContent}: now ${now}, at most ${this.unit(max)} in 15 minutes`);
  }
}

const micros = (value) => (value < 1000 ? `${count(value)} µs` : `${count(value / 1000)} ms`);

const charts = {
  requests: new Chart("requests/s", ["requests"], count),
  denials: new Chart("denials/s", ["denials"], count),
  failures: new Chart("failures/s", ["failures"], count),
  latency: new Chart("check p50 / p99", ["p50", "p99"], micros),
};

function showCharts({ requests, denials, failures, calls, p50_micros: p50, p99_micros: p99 }) {
  // A server that other Mixers call has calls of adapters only.
  const hasRequests = requests.some((rate) => rate > 0) || !calls.some((rate) => rate > 0);
  setText(charts.requests.title, hasRequests ? "requests/s" : "calls/s");
  charts.requests.update([hasRequests ? requests : calls]);
  charts.denials.update([denials]);
  charts.failures.update([failures]);
  charts.latency.update([p50, p99]);
}

/** The numbers of decisions that the page holds and shows. */
const MAX_DECISIONS = 500;
const MAX_SHOWN = 100;
/** The most users, paths and the like that are named. */
const MAX_HIT = 5;

/** The decisions by id, the last ones first, and those that the form selects. */
const recent = { last: 0, missed: 0, skipped: 0, all: [], selected: [], isPaused: false, unseen: 0, verdicts: new Set() };

const BAD = new Set(["denied", "refused", "over_limit", "failed", "unmatched"]);

/** The texts in a value, whatever its depth. */
const texts = (value) => (value !== null && typeof value === "object" ? Object.values(value).flatMap(texts) : [String(value)]);

function isSelected({ lines, text }) {
  const verdict = find("verdict").value;
  return (!verdict || lines.some((line) => line.verdict === verdict)) && text.includes(find("filter").value.trim().toLowerCase());
}

/** Adds lines of the decision log. Those of one id, a check and its quotas, are shown together. */
function addDecisions(lines) {
  const known = new Map(recent.all.map((decision) => [decision.id, decision]));
  for (const line of lines) {
    let decision = known.get(line.decision_id);
    if (!decision) {
      decision = { id: line.decision_id, lines: [], text: "" };
      known.set(decision.id, decision);
      recent.all.unshift(decision);
    }
    decision.lines.push(line);
    decision.text += `\n${texts(line).join("\n").toLowerCase()}`;
    if (!recent.verdicts.has(line.verdict)) {
      recent.verdicts.add(line.verdict);
      find("verdict").append(make("option", line.verdict));
    }
    if (!recent.selected.includes(decision) && isSelected(decision)) {
      recent.selected.unshift(decision);
      recent.unseen += 1;
    }
  }
  // Those that are searched for are held longer than the others.
  recent.all.splice(MAX_DECISIONS);
  recent.selected.splice(MAX_DECISIONS);
}

const pathOf = (attributes) => attributes["request.path"] ?? attributes["request.url_path"];

const userOf = (attributes) => attributes["source.user"] ?? attributes["source.principal"] ?? attributes["request.auth.principal"];

/** The parts of a line that are read first. */
function lineParts({ kind, verdict, shadow, code, message, rules = [], failed = [], quota, amount, granted, requests, attributes = {}, latency_seconds: latency, peer }) {
  const amounts = amount === undefined ? "" : `: ${granted} of ${amount}`;
  const kindText = shadow ? `in the shadow (${shadow})` : kind.replace("_", " ");
  const of = kind === "quota" ? `${quota}${amounts}` : kind === "report" ? plural(requests, "request") : (rules.length ? rules : failed.map((part) => part.rule)).join(", ");
  const duration = latency === undefined ? "" : micros(Math.round(latency * 1e6));
  const where = [pathOf(attributes), userOf(attributes), duration, peer].filter((part) => part).join(" · ");
  return [
    make("b", verdict, BAD.has(verdict) ? "red" : "green"), make("span", kindText, "faint"), make("span", of),
    make("span", [code, message].filter((part) => part).join(": ")), make("span", where, "faint"),
  ];
}

function decisionItem(decision) {
  const [{ time, decision_id: id }] = decision.lines;
  const item = make("li", [make("time", new Date(time).toLocaleTimeString("en", { hourCycle: "h23" }))]);
  const details = make("details", make("summary", make("code", id)));
  const attributes = make("pre");
  details.append(attributes);
  details.addEventListener("toggle", () => setText(attributes, JSON.stringify(decision.lines, null, 1)));
  item.append(details);
  item.shownLines = 0;
  return item;
}

/** Adds the lines of a decision that are not shown yet. */
function updateDecision(item, { lines }) {
  const details = item.querySelector("details");
  for (; item.shownLines < lines.length; item.shownLines += 1) {
    const line = lines[item.shownLines];
    const parts = lineParts(line);
    details.before(...(item.shownLines ? [make("div", parts.flatMap((part) => [part, " "]))] : parts));
    if (line.attributes && line.kind !== "log_entry") {
      const button = make("button", "Explain");
      button.addEventListener("click", () => {
        find("attributes").value = JSON.stringify(line.attributes, null, 1);
        explain();
        find("explain").scrollIntoView({ block: "nearest" });
      });
      details.before(button);
    }
  }
}

/** The most frequent values, with their counts. */
function mostFrequent(values) {
  const counts = new Map();
  values.filter((value) => value).forEach((value) => counts.set(value, (counts.get(value) ?? 0) + 1));
  const sorted = [...counts].sort(([, a], [, b]) => b - a);
  const more = sorted.length > MAX_HIT ? [`and ${count(sorted.length - MAX_HIT)} more`] : [];
  return [...sorted.slice(0, MAX_HIT).map(([value, number]) => `${value} (${number})`), ...more].join(", ");
}

/** Describes which rules, handlers, users, paths and peers lines of one verdict hit. */
function hitBy(verdict, lines) {
  const groups = {
    rules: lines.flatMap((line) => line.failed?.map((part) => part.rule) ?? line.rules ?? [line.quota]),
    handlers: lines.flatMap((line) => line.failed?.map((part) => part.handler) ?? []),
    users: lines.map((line) => userOf(line.attributes ?? {})),
    paths: lines.map((line) => pathOf(line.attributes ?? {})),
    peers: lines.map((line) => line.peer?.replace(/:\d+$/, "")),
  };
  const hit = Object.entries(groups).map(([name, values]) => [name, mostFrequent(values)]).filter(([, values]) => values);
  const text = hit.map(([name, values]) => `${name} ${values}`).join(" · ");
  return text && `${count(lines.length)} ${verdict}: ${text}`;
}

/** Shows what denials and failures hit, each by itself. */
function showHit() {
  const lines = recent.selected.flatMap((decision) => decision.lines).filter((line) => line.kind !== "shadow");
  const texts = [...BAD].map((verdict) => ({ verdict, text: hitBy(verdict, lines.filter((line) => line.verdict === verdict)) }));
  const shown = texts.filter(({ text }) => text);
  patch(find("hit"), shown, ({ verdict }) => verdict, () => make("p", ""), (item, { text }) => setText(item, text));
}

function showDecisions() {
  setText(find("pause"), recent.isPaused ? `Resume${recent.unseen ? ` (${recent.unseen} new)` : ""}` : "Pause");
  if (recent.isPaused) return;
  recent.unseen = 0;
  const list = find("recent");
  const held = new Set([...list.children].filter(isHeld).map((item) => item.key));
  const shown = recent.selected.filter((decision, index) => index < MAX_SHOWN || held.has(decision.id));
  // One that somebody reads stays, also if it is not held any more.
  const isShown = new Set(shown.map((decision) => decision.id));
  shown.push(...[...list.children].filter((item) => held.has(item.key) && !isShown.has(item.key) && isSelected(item.decision)).map((item) => item.decision));
  const create = (decision) => Object.assign(decisionItem(decision), { decision });
  patch(list, shown, (decision) => decision.id, create, updateDecision);
  const none = recent.all.length ? "None matches." : "None since this page is open.";
  const notes = [
    shown.length ? "" : none,
    recent.missed && `Replaced before they could be shown: ${count(recent.missed)}.`,
    recent.skipped && `Not recorded, beyond 100 a second: ${count(recent.skipped)}.`,
  ];
  setText(find("counts"), notes.filter((note) => note).join(" "));
  showHit();
}

async function readDecisions() {
  const { last, missed, skipped, decisions } = await get(`decisions?after=${recent.last}`);
  Object.assign(recent, { last, missed: recent.missed + missed, skipped });
  addDecisions(decisions);
  find("decisions").hidden = false;
  showDecisions();
}

function select() {
  recent.selected = recent.all.filter(isSelected);
  const wasPaused = recent.isPaused;
  // A search is answered also in a paused list.
  recent.isPaused = false;
  showDecisions();
  recent.isPaused = wasPaused;
}

function startDecisions() {
  find("decisions").querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  find("filter").addEventListener("input", select);
  find("verdict").addEventListener("change", select);
  find("pause").addEventListener("click", () => {
    recent.isPaused = !recent.isPaused;
    showDecisions();
  });
}

/** Lines of `name=value`, or JSON, as a request to explain. */
async function explanation(text) {
  const isJson = /^\s*[[{]/.test(text);
  const pairs = text.split("\n").map((line) => line.trim()).filter((line) => line).map((line) => {
    const at = line.indexOf("=");
    return [line.slice(0, at < 0 ? undefined : at).trim(), at < 0 ? "" : line.slice(at + 1).trim()];
  });
  const response = isJson
    ? await fetch("explain", { method: "POST", headers: { "content-type": "application/json" }, body: text })
    : await fetch(`explain?${new URLSearchParams(pairs)}`);
  return response.ok ? (await response.json()).text : await response.text();
}

async function explain() {
  const text = find("attributes").value;
  // A link to this explanation.
  history.replaceState(null, "", `#explain=${encodeURIComponent(text)}`);
  const shown = find("explanation");
  try {
    shown.textContent = await explanation(text);
  } catch (error) {
    shown.textContent = error.message;
  }
  shown.hidden = false;
}

function startExplaining() {
  find("explain").hidden = false;
  find("explain").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    explain();
  });
  // A link fills in the form only: an explanation calls adapters.
  const linked = location.hash.match(/^#explain=(.*)$/s);
  if (!linked) return;
  try {
    find("attributes").value = decodeURIComponent(linked[1]);
  } catch {
    find("explanation").textContent = "The link is not valid: a % in it is not followed by two digits.";
    find("explanation").hidden = false;
  }
}

const isBad = (value) => (item) => (value(item) ? "red" : "");

const isFailed = (name) => ({ title: "failed", value: (item) => item[name], level: isBad((item) => item[name]) });

const mean = { title: "mean µs", value: (item) => item.mean_micros };

/** The tables of the inventory. Each is made when its section is first opened. */
const tables = {};

function inventory(id, columns, sorted, items) {
  tables[id] ??= new Table(find(id), id, columns, sorted);
  tables[id].update(items, find("search").value.trim());
}

function showResources({ rules, other_rules: others, handlers, instances, quotas }) {
  const named = (title) => ({ title, value: (item) => item.name });
  const number = (title, name) => ({ title, value: (item) => item[name] });
  const failures = ({ failed, unbuilt = 0, failed_calls: calls = {} }) => (failed === undefined ? failed : Object.values(calls).reduce((a, b) => a + b, failed + unbuilt));
  const lastFailure = ({ last_failure: last }) => (last ? `${last.handler}: ${last.cause}, ${last.seconds_ago} s ago` : "");
  inventory("rules", [
    named("rule"), { title: "place", value: (rule) => rule.place }, number("matched", "matched"), number("from cache", "cached"), number("denied", "denied"),
    { title: "failed", value: failures, level: isBad(failures) }, { title: "last failure", value: lastFailure }, mean,
  ], 2, [...rules, ...others]);
  inventory("handlers", [named("handler"), number("calls", "calls"), number("from cache", "cached"), isFailed("failed"), mean], 1, handlers);
  inventory("instances", [named("instance"), number("built", "built"), isFailed("failed")], 1, instances);
  const remaining = ({ last_limit: limit }) => {
    if (!limit) return "";
    const window = limit.window_seconds === null ? "" : ` in ${limit.window_seconds} s`;
    return `${limit.remaining} of ${limit.max_amount}${window}, ${limit.seconds_ago} s ago`;
  };
  inventory("quotas", [
    named("quota"), number("requests", "requests"), number("refused", "refused"), number("amount requested", "requested"),
    number("granted", "granted"), number("given back", "returned"), { title: "remaining for one combination of dimensions", value: remaining },
  ], 1, quotas);
}

function showConfiguration(config) {
  const rows = config.faults.map((text) => ({ text }));
  rows.unshift(...config.refusal.map((text) => ({ text: `refused: ${text}` })));
  const state = config.applied_at === null ? "none yet" : `in use for ${since(config.applied_at)}`;
  rows.unshift({ text: `${state}; ${config.applied} applied, ${config.rejected} refused` });
  rows.push(...Object.entries(config.resources).map(([name, number]) => ({ text: last(name), number, version: config.versions[name] })));
  inventory("configuration", [
    { title: "state, faults and collections", value: (row) => row.text }, { title: "resources", value: (row) => row.number },
    { title: "version", value: (row) => row.version },
  ], 1, rows);
}

function showSources(sources) {
  const accepted = ({ unsupported, accepted_seconds_ago: ago, synced }) => {
    if (unsupported) return "not served by the source";
    return ago === null ? "not yet" : `${ago} s ago${synced ? "" : ", from the cache"}`;
  };
  const rows = sources.flatMap(({ source, peers, collections, messages }) => [
    ...collections.map((collection) => ({
      name: `${source} ${last(collection.collection)}`, peers: peers.join(", ") || "nobody", resources: collection.resources,
      version: collection.version, what: accepted(collection),
      refused: collection.refused ? `${collection.refused.version}: ${collection.refused.reason}` : "",
    })),
    ...messages.map((message, index) => ({
      name: `${source} message ${index + 1}`, peers: clock(message.time), version: message.nonce,
      what: `${message.kind} ${last(message.collection)} ${message.what}`,
    })),
  ]);
  const column = (title, name) => ({ title, value: (row) => row[name] });
  inventory("sources", [
    column("source and collection", "name"), column("connected, or time", "peers"), column("resources", "resources"),
    column("version or nonce", "version"), column("accepted", "what"), { ...column("refused", "refused"), level: () => "red" },
  ], 2, rows);
}

function showAdapters({ adapters, handlers, cache }) {
  const rows = adapters.map(({ name, description, templates, sessions }) => ({ name, description: `${description} ${templates.join(", ")}`, sessions }));
  rows.push({ name: "(handlers)", description: `${handlers.open} open, ${handlers.cached} of them cached for calls that carry their configuration` });
  if (cache) {
    const found = cache.hits + cache.coalesced + cache.stale;
    const all = found + cache.misses;
    rows.push({
      name: "(check cache)",
      description: `${count(found)} of ${count(all)} checks (${Math.floor((found * 100) / Math.max(all, 1))} %): ${count(cache.hits)} hits, `
        + `${count(cache.coalesced)} coalesced, ${count(cache.stale)} stale; ${count(cache.bypassed)} evaluated without a lookup. ${count(cache.saved_calls)} calls of adapters and ${count(cache.saved_seconds)} s of evaluation saved. `
        + `${count(cache.answers)} answers in ${count(Math.ceil(cache.bytes / 1024))} kB; ${count(cache.evictions)} evicted.`,
    });
  }
  inventory("adapters", [
    { title: "adapter", value: (row) => row.name }, { title: "description, templates", value: (row) => row.description },
    { title: "sessions", value: (row) => row.sessions },
  ], 0, rows);
}

function showSessions({ sessions }) {
  const column = (title, value) => ({ title, value });
  inventory("sessions", [
    column("session", ({ id }) => id), column("adapter", ({ adapter }) => adapter), column("instances", ({ instances }) => instances.join(", ")),
    column("claims", ({ claims }) => claims), column("idle, % of its time", ({ idle_tenths: tenths }) => tenths * 10),
  ], 3, sessions);
}

/** One row for all evaluations of a kind, and one for each rule with differences. */
function showShadow({ shadow = [] }) {
  const rows = shadow.flatMap(({ shadow: kind, results, rules }) => [
    { kind, rule: "(all)", ...results },
    ...rules.map(({ rule, differences }) => ({ kind, rule, ...differences })),
  ]);
  const column = (title, name) => ({ title, value: (row) => row[name] });
  inventory("shadow", [
    column("rule", "rule"), column("shadow", "kind"), column("same", "same"), column("would deny", "would_deny"), column("would allow", "would_allow"),
    column("other status", "other_status"), isFailed("failed"), column("dropped", "dropped"),
  ], 3, rows);
}

function showMetrics({ metrics }) {
  const column = (title, name) => ({ title, value: (row) => row[name] });
  inventory("metrics", [column("series", "series"), column("value", "value")], 0, metrics);
}

/** Reads and shows the section of the inventory that is open. */
async function showInventory(status) {
  const id = find("inventory").querySelector("details[open]")?.id;
  if (["rules", "handlers", "instances", "quotas"].includes(id)) {
    const { in_use: used } = await get("status");
    if (used) showResources(used);
  } else if (id === "configuration" || id === "sources") {
    const config = await get("config");
    if (config) showConfiguration(config), showSources(config.sources);
  } else if (id === "adapters") showAdapters(status);
  else if (id === "shadow") showShadow(status);
  else if (id === "metrics") showMetrics(await get("status"));
  else if (id === "sessions") showSessions(await get("sessions"));
}

const changeItem = () => make("li", [make("b"), make("span"), make("div")]);

function updateChange(item, { at, resources, fields = [] }) {
  setText(item.children[0], `${clock(at)}, ${since(at)} ago: `);
  setText(item.children[1], resources.join("; "));
  setText(item.children[2], fields.join("; "));
}

/** The last status. */
let shown = null;

function show15Minutes(status) {
  const { state, problems, past_problems: past, changes, version, started, history, in_use: used } = status;
  showState(state, problems, "mixer-adapter");
  setText(find("about"), `${version} · up ${since(started)}${used ? ` · ${plural(used.rule_count, "rule")}, ${plural(used.handler_count, "handler")}` : ""}`);
  showCharts(history);
  find("past").hidden = past.length === 0;
  const over = past.map((problem) => ({ ...problem, is_over: true }));
  patch(find("past").querySelector("ul"), over, (problem) => `${problem.kind} ${problem.name}`, problemItem, updateProblem);
  find("changes").hidden = changes.length === 0;
  patch(find("changes").querySelector("ul"), changes, ({ at, resources }) => `${at} ${resources[0]}`, changeItem, updateChange);
}

repeat("mixer-adapter", async () => {
  const status = await get("status?brief");
  if (!shown) {
    if (status.explain) startExplaining(), startDecisions();
    find("closed").hidden = status.explain;
    const refresh = () => showInventory(shown).catch(() => {});
    find("search").addEventListener("input", refresh);
    find("inventory").querySelectorAll("details").forEach((details) => details.addEventListener("toggle", refresh));
  }
  shown = status;
  show15Minutes(status);
  if (status.explain) await readDecisions();
  await showInventory(status);
});
