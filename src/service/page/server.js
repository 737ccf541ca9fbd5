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

function resources(used) {
  if (!used) return ["rules", "handlers", "instances"].forEach((id) => show(id));
  const rules = used.rules.map((rule) => [rule.name, rule.place, rule.matched, rule.denied, bad(rule.failed)]);
  const handlers = used.handlers.map((handler) => [
    handler.name, handler.calls, bad(handler.failed), handler.mean_micros === null ? "" : `${handler.mean_micros} µs`,
  ]);
  const instances = used.instances.map((instance) => [instance.name, instance.built, bad(instance.failed)]);
  const shown = (columns, rows, caption) => (rows.length ? [table(columns, rows, caption)] : []);
  show("rules", ...shown(["rule", "place", "matched", "denied", "failed"], rules, "Rules"));
  show("handlers", ...shown(["handler", "calls", "failed", "mean"], handlers, "Handlers"));
  show("instances", ...shown(["instance", "built", "failed"], instances, "Instances"));
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
  const linked = location.hash.match(/^#explain=(.*)$/s);
  if (linked) {
    attributes.value = decodeURIComponent(linked[1]);
    run();
  }
}

let explains = false;

repeat(async () => {
  const [status, config, open] = await Promise.all([get("status"), get("config"), get("sessions")]);
  state(status);
  notes(status, config);
  use(status, config);
  resources(status.in_use);
  show("sources", ...(config ? config.sources.map(source) : []));
  adapters(status);
  cache(status.cache);
  sessions(open);
  if (status.explain && !explains) {
    explains = true;
    find("explain").hidden = false;
    startExplaining();
  }
});
