function state(status) {
  const ready = status.pending.length === 0;
  const text = ready ? "ready" : `waiting for ${status.pending.join(", ")}`;
  find("state").replaceChildren(
    make("span", text, ready ? "good" : "warn"),
    make("span", ` · ${status.version} · up ${since(status.started)}`, "faint"),
  );
}

function notes(status, config) {
  const notes = status.warnings.map((warning) => note(warning, "warn"));
  if (config) {
    notes.push(...config.refusal.map((fault) => note(`Refused: ${fault}`, "bad")));
    notes.push(...config.faults.map((fault) => note(fault, "warn")));
  }
  find("notes").replaceChildren(...notes);
}

function use(status, config) {
  if (!config) return show("use");
  const age = config.applied_at === null ? "none yet" : `in use for ${since(config.applied_at)}`;
  const size = status.in_use ? `, ${status.in_use.rule_count} rules with an effect, ${status.in_use.handler_count} handlers` : "";
  const text = `${age}${size}; ${config.applied} applied, ${config.rejected} refused`;
  const rows = Object.entries(config.resources).map(([name, count]) => [last(name), count, config.versions[name]]);
  show("use", make("p", text), rows.length ? table(["collection", "resources", "version"], rows, "Collections in use") : null);
}

/** A number that should be 0. */
const bad = (count) => (count ? make("span", count.toLocaleString("en"), "bad") : 0);

/** The mean duration of calls. */
const mean = ({ mean_micros }) => (mean_micros === null ? "" : `${mean_micros.toLocaleString("en")} µs`);

function resources(used) {
  if (!used) return ["rules", "handlers", "instances"].forEach((id) => show(id));
  const rules = used.rules.map((rule) => [
    rule.name, rule.place, rule.matched, rule.denied, bad(rule.failed), mean(rule),
  ]);
  const handlers = used.handlers.map((handler) => [
    handler.name, handler.calls, bad(handler.failed), mean(handler),
  ]);
  const instances = used.instances.map((instance) => [instance.name, instance.built, bad(instance.failed)]);
  const shown = (columns, rows, caption) => (rows.length ? [table(columns, rows, caption)] : []);
  show("rules", ...shown(["rule", "place", "matched", "denied", "failed", "mean"], rules, "Rules"));
  show("handlers", ...shown(["handler", "calls", "failed", "mean"], handlers, "Handlers"));
  show("instances", ...shown(["instance", "built", "failed"], instances, "Instances"));
}

function metrics(series) {
  if (!series.length) return show("metrics");
  const rows = series.map((one) => [one.series, one.value]);
  show("metrics", table(["series", "value"], rows, "Metrics of handlers"));
}

function quotas(used) {
  if (!used || !used.quotas.length) return show("quotas");
  const state = (limit) => {
    if (!limit) return "";
    const window = limit.window_seconds === null ? "" : ` in ${limit.window_seconds} s`;
    return `${limit.remaining} of ${limit.max_amount}${window} (${ago(limit.seconds_ago)} ago)`;
  };
  const rows = used.quotas.map((quota) => [
    quota.name, quota.requests, quota.refused, quota.requested, quota.granted, quota.returned, state(quota.last_limit),
  ]);
  const columns = ["quota", "requests", "refused", "amount requested", "granted", "given back", "remaining"];
  const text = "What remained in the last answer that has it is that of one combination of dimensions; only rate limits of Envoy request it.";
  show("quotas", table(columns, rows, "Quotas"), make("p", text, "faint"));
}

/** The number of decisions that the page holds. */
const MAX_DECISIONS = 500;

/** The number of decisions that the page shows. */
const MAX_SHOWN = 100;

const recent = { last: 0, missed: 0, skipped: 0, decisions: [], verdicts: new Set() };

/** The names by which a decision is found. */
const names = (decision) => [decision.decision_id, decision.quota ?? "", ...(decision.rules ?? [])];

function decisionRow(decision, joined) {
  const { verdict, code, message, rules = [], quota, amount, granted, requests, attributes, omitted } = decision;
  const kind = verdict === "denied" || verdict === "refused" || verdict === "over_limit" || verdict === "failed" ? "bad" : "";
  const amounts = amount === undefined ? "" : `: ${granted} of ${amount}`;
  const of = decision.kind === "quota" ? `${quota}${amounts}` : decision.kind === "report" ? `${requests} requests` : rules.join(", ");
  const reason = [code, message].filter((part) => part).join(": ");
  const left = omitted ? [make("p", `${omitted} more attributes`, "faint")] : [];
  const all = attributes
    ? make("details", [make("summary", "attributes"), make("pre", JSON.stringify(attributes, null, 1)), ...left])
    : "";
  const latency = decision.latency_seconds === undefined ? "" : `${Math.round(decision.latency_seconds * 1e6)} µs`;
  const row = make("tr", [
    new Date(decision.time).toLocaleTimeString(), make("code", decision.decision_id), decision.kind.replace("_", " "),
    make("span", verdict, kind), make("div", [of, ...(reason ? [make("div", reason, "faint")] : [])]), latency, decision.peer ?? "", all,
  ].map((content) => make("td", content)), joined ? "joined" : "");
  return row;
}

/** Shows the decisions that match the form, the last ones first, those of one id together. */
function showDecisions() {
  const text = find("rule").value.trim().toLowerCase();
  const verdict = find("verdict").value;
  const matches = (decision) =>
    (!verdict || decision.verdict === verdict) && (!text || names(decision).some((name) => name.toLowerCase().includes(text)));
  const groups = new Map();
  for (const decision of recent.decisions) {
    const group = groups.get(decision.decision_id) ?? [];
    group.push(decision);
    groups.set(decision.decision_id, group);
  }
  const shown = [...groups.values()].filter((group) => group.some(matches)).reverse().flat().slice(0, MAX_SHOWN);
  const counts = [
    recent.missed && `${recent.missed} were replaced before they could be shown`,
    recent.skipped && `${recent.skipped} calls beyond 100 a second were not recorded`,
  ].filter((part) => part).join("; ");
  // An attribute that somebody reads stays open.
  const open = new Set([...find("recent").querySelectorAll("details[open]")].map((details) => details.dataset.key));
  const columns = ["time", "decision", "kind", "verdict", "rules or quota", "latency", "peer", ""];
  const headings = columns.map((column) => {
    const heading = make("th", column);
    heading.scope = "col";
    return heading;
  });
  const rows = shown.map((decision, index) => {
    const row = decisionRow(decision, shown[index + 1]?.decision_id === decision.decision_id);
    row.querySelectorAll("details").forEach((details) => {
      details.dataset.key = `${decision.decision_id} ${decision.kind} ${decision.time}`;
      details.open = open.has(details.dataset.key);
    });
    return row;
  });
  const all = make("table", [make("thead", make("tr", headings)), make("tbody", rows)]);
  all.setAttribute("aria-label", "Last decisions");
  const none = recent.decisions.length ? "None matches." : "None since this page is open.";
  find("recent").replaceChildren(
    rows.length ? make("div", all, "table") : make("p", none, "faint"), make("p", counts, "faint"),
  );
}

async function decisions() {
  const { last, missed, skipped, decisions } = await get(`decisions?after=${recent.last}`);
  recent.decisions.push(...decisions);
  recent.decisions.splice(0, recent.decisions.length - MAX_DECISIONS);
  for (const { verdict } of decisions.filter(({ verdict }) => !recent.verdicts.has(verdict))) {
    recent.verdicts.add(verdict);
    find("verdict").append(make("option", verdict));
  }
  const changed = decisions.length > 0 || recent.skipped !== skipped || find("decisions").hidden;
  Object.assign(recent, { last, missed: recent.missed + missed, skipped });
  find("decisions").hidden = false;
  if (changed) showDecisions();
}

function startFiltering() {
  find("decisions").querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  find("rule").addEventListener("input", showDecisions);
  find("verdict").addEventListener("change", showDecisions);
}

function accepted(collection) {
  if (collection.unsupported) return make("span", "not served by the source", "warn");
  if (collection.accepted_seconds_ago === null) return make("span", "not yet", "warn");
  const from = collection.synced ? "" : ", from the cache";
  return `${ago(collection.accepted_seconds_ago)} ago${from}`;
}

function source(source) {
  const who = source.id ? `As ${source.id}; connected: ${source.peers.join(", ") || "nobody"}.` : "";
  const rows = source.collections.map((collection) => [
    last(collection.collection),
    collection.resources,
    collection.version,
    accepted(collection),
    collection.refused ? make("span", `${collection.refused.version}: ${collection.refused.reason}`, "bad") : "",
  ]);
  const messages = source.messages.map((message) => [
    new Date(message.time * 1000).toLocaleTimeString(), message.kind, message.collection, message.nonce, message.what,
  ]);
  const columns = ["time", "message", "collection", "nonce", "content"];
  return make("div", [
    make("h3", source.source),
    make("p", who, "faint"),
    table(["collection", "resources", "version", "accepted", "refused"], rows, `Collections of ${source.source}`),
    make("details", [make("summary", "Last messages"), table(columns, messages, "Messages")]),
  ]);
}

function adapters(status) {
  const rows = status.adapters.map((adapter) => [
    make("b", adapter.name), adapter.description, adapter.templates.join(", "), adapter.sessions,
  ]);
  const handlers = `${status.handlers.open} open handlers, ${status.handlers.cached} of them cached for calls that carry their configuration`;
  show("adapters", table(["adapter", "description", "templates", "sessions"], rows, "Adapters"), make("p", handlers, "faint"));
}

function cache(cache) {
  if (!cache) return show("cache");
  const found = cache.hits + cache.coalesced + cache.stale;
  const all = found + cache.misses;
  const text = `${found} of ${all} checks (${Math.floor(found * 100 / all)} %): ${cache.hits} hits, ${cache.coalesced} coalesced, `
    + `${cache.stale} stale. They saved ${cache.saved_calls} calls of adapters and ${cache.saved_seconds.toFixed(1)} s of evaluation. `
    + `It has ${cache.answers} answers in ${Math.ceil(cache.bytes / 1024)} kB; ${cache.evictions} were evicted.`;
  show("cache", make("p", text));
}

function sessions({ total, sessions }) {
  if (total === 0) return show("sessions");
  const rows = sessions.map((session) => [
    session.id, session.adapter, session.instances.join(", "), session.claims, `${session.idle_tenths * 10} % of its time`,
  ]);
  show("sessions", make("p", `${total} open`), table(["session", "adapter", "instances", "claims", "idle"], rows, "Sessions"));
}

/** Lines of `name=value`, or JSON, as a request to explain. */
async function explain(text) {
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

function startExplaining() {
  const form = find("explain").querySelector("form");
  const attributes = find("attributes");
  const run = async () => {
    const shown = find("explanation");
    try {
      shown.textContent = await explain(attributes.value);
    } catch (error) {
      shown.textContent = error.message;
    }
    shown.hidden = false;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    // A link to this explanation.
    history.replaceState(null, "", `#explain=${encodeURIComponent(attributes.value)}`);
    run();
  });
  // A link fills in the form only: an explanation calls adapters.
  const linked = location.hash.match(/^#explain=(.*)$/s);
  if (linked) {
    try {
      attributes.value = decodeURIComponent(linked[1]);
    } catch {
      find("explanation").textContent = "The link is not valid: a % in it is not followed by two digits.";
      find("explanation").hidden = false;
    }
  }
}

let explains = false;

repeat(async () => {
  const [status, config, open] = await Promise.all([get("status"), get("config"), get("sessions")]);
  state(status);
  notes(status, config);
  use(status, config);
  resources(status.in_use);
  quotas(status.in_use);
  metrics(status.metrics);
  show("sources", ...(config ? config.sources.map(source) : []));
  adapters(status);
  cache(status.cache);
  sessions(open);
  if (status.explain && !explains) {
    explains = true;
    find("explain").hidden = false;
    startExplaining();
    startFiltering();
  }
  if (status.explain) await decisions();
});
