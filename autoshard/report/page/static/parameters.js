// Inputs (parameters, optimizer state, batches) and outputs in a table that can be sorted.

function drawParameters(plan) {
  const body = section("parameters"), { inputs, outputs } = plan;
  const donated = new Set(inputs.donated), host = new Set(inputs.host);
  const gathers = (v) => plan.movesOf(v).reduce((sum, k) => sum + plan.moves.seconds[k] * plan.moves.times[k], 0);
  const rows = inputs.value.map((value, k) => ({
    value, layout: plan.values.made[value], name: plan.valueName(value), seconds: gathers(value), way: "in", member: value,
    note: [donated.has(k) && "donated", host.has(k) && "on the host"].filter(Boolean).join(", "),
  }));
  outputs.name.forEach((name, k) => rows.push({ value: outputs.value[k], layout: outputs.layout[k], name: plan.text(name), seconds: 0, way: "out", note: "", member: -1 - k }));
  for (const row of rows) {
    row.local = plan.localBytes(row.value, row.layout);
    row.whole = plan.typeOf(row.value).shape.reduce((a, b) => a * b, 1) * plan.values.item_bytes[row.value];
    row.stated = plan.statedOf(row.member).length;
  }
  let way = "in", words = "";
  const count = el("span", { class: "hint", role: "status" });
  const shown = () => {
    const kept = rows.filter((row) => row.way === way && words.split(/\s+/).every((word) => `${row.name} ${plan.shardingText(row.layout)}`.toLowerCase().includes(word)));
    count.textContent = `${counted(kept.length, "array")}, ${bytesText(kept.reduce((a, r) => a + r.local, 0))} on a device of ${bytesText(kept.reduce((a, r) => a + r.whole, 0))} in all`;
    return kept;
  };
  const table = new Table({
    label: "Parameters", rows: shown(), pick: (row) => inspect(row.way === "in" ? { value: row.value } : { output: -1 - row.member }),
    columns: [
      { title: "path", width: "minmax(14rem, 3fr)", up: true, value: (r) => r.name, cell: (r) => r.name },
      { title: "type, cut by", width: "minmax(12rem, 3fr)", up: true, value: (r) => plan.text(plan.values.type[r.value]), cell: (r) => typeNode(plan, r.value, r.layout) },
      { title: "sharding", width: "minmax(10rem, 2fr)", up: true, value: (r) => plan.shardingText(r.layout), cell: (r) => plan.shardingText(r.layout) },
      { title: "whole", width: "6.5rem", right: true, value: (r) => r.whole, cell: (r) => bytesText(r.whole) },
      { title: "on a device", width: "6.5rem", right: true, value: (r) => r.local, cell: (r) => bytesText(r.local) },
      { title: "transfers", width: "6.5rem", right: true, value: (r) => r.seconds, cell: (r) => (r.seconds ? secondsText(r.seconds) : "") },
      { title: "", width: "7rem", up: true, value: (r) => r.note + r.stated, cell: (r) => [r.stated ? "stated" : "", r.note].filter(Boolean).join(", ") },
    ],
    sortedBy: 4,
  });
  const filter = el("input", { type: "search", id: "filter", placeholder: "Filter paths and shardings", "aria-label": "Filter parameters", spellcheck: "false" });
  filter.addEventListener("input", () => {
    words = filter.value.toLowerCase().trim();
    table.setRows(shown());
  });
  filter.addEventListener("keydown", (event) => event.stopPropagation());
  const which = switcher("Inputs or outputs", [["in", "inputs"], ["out", "outputs"]], way, (value) => {
    way = value;
    table.setRows(shown());
  });
  body.append(el("div", { class: "tools" }, which, filter, count), table.node);
}
