function sink(sink) {
  const annotations = Object.entries(sink.annotations).map(([name, value]) => `${name}=${value}`).join(", ");
  const rows = Object.entries(sink.collections).map(([name, watch]) => [
    last(name),
    watch.accepted ?? make("span", "none", "warn"),
    watch.refused ? make("span", `${watch.refused[0]}: ${watch.refused[1]}`, "bad") : "",
  ]);
  return make("div", [
    make("h3", sink.id || sink.peer),
    make("p", [sink.peer, annotations].filter((part) => part).join(" · "), "faint"),
    table(["collection", "accepted", "refused"], rows, `Versions of ${sink.id}`),
  ]);
}

repeat(async () => {
  const config = await get("config");
  find("state").textContent = config.source;
  find("notes").replaceChildren(...config.faults.map((fault) => note(fault, "bad")));
  const rows = Object.entries(config.collections).map(([name, { resources, version }]) => [name, resources, version]);
  show("collections", rows.length
    ? table(["collection", "resources", "version"], rows, "Collections")
    : make("p", "Nothing is served", "warn"));
  show("sinks", ...(config.sinks.length ? config.sinks.map(sink) : [make("p", "None is connected", "faint")]));
});
