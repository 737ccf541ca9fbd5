const column = (title, name, level) => ({ title, value: (row) => row[name], level: () => level });

const collections = new Table(find("collections"), "Collections", [
  column("collection", "name"), column("resources", "resources"), column("version", "version"),
]);

const sinks = new Table(find("sinks"), "Sinks", [
  column("sink and collection", "name"), column("accepted version", "accepted"), column("refused", "refused", "red"), column("about", "about"),
], 2);

let config = null;

function showSinks() {
  const rows = config.sinks.flatMap(({ id, peer, annotations, collections }) => {
    const about = [peer, ...Object.entries(annotations).map(([name, value]) => `${name}=${value}`)].filter((part) => part).join(" · ");
    return Object.entries(collections).map(([name, { accepted, refused }]) => ({
      name: `${id || peer} ${last(name)}`, accepted: accepted ?? "none", refused: refused ? refused.join(": ") : "", about,
    }));
  });
  sinks.update(rows, find("search").value.trim());
  return rows;
}

find("search").addEventListener("input", () => config && showSinks());

repeat("mixer-adapter source", async () => {
  config = await get("config");
  const faults = config.faults.map((text) => ({ level: "red", kind: "fault", name: text, text: `not served: ${text}` }));
  const refused = showSinks().filter((row) => row.refused);
  const refusals = refused.map(({ name, refused }) => ({ level: "red", kind: "refused", name, text: `${name} refuses ${refused}` }));
  const problems = [...faults, ...refusals];
  if (config.sinks.length === 0) problems.push({ level: "amber", kind: "sinks", name: "", text: "no sink is connected" });
  showState(problems[0]?.level ?? "green", problems, "mixer-adapter source");
  setText(find("about"), config.source);
  collections.update(Object.entries(config.collections).map(([name, { resources, version }]) => ({ name, resources, version })));
});
