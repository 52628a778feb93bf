// Step time by mesh axis and kind of work, and every collective in a table.

function drawStepTime(plan) {
  const body = section("steptime"), { step, verdict: v, ops } = plan;
  const work = new Map([["matmuls", 0], ["other ops", 0], ["ops that only move data", 0]]);
  for (let op = 0; op < plan.count; op++) {
    const name = plan.text(ops.unit[op]) === "matmul" ? "matmuls" : ops.flop[op] || !ops.bytes[op] ? "other ops" : "ops that only move data";
    work.set(name, work.get(name) + ops.seconds[op]);
  }
  const kinds = ["kind-compute", "kind-other", "kind-moving"];
  const own = [{ name: "compute", parts: [...work].map(([text, seconds], k) => ({ colour: kinds[k], text, seconds, hidden: 0 })) }];
  if (step.local_s > 0) own.push({ name: "local copies", parts: [{ colour: "kind-copy", text: "slices, masks, host copies", seconds: step.local_s, hidden: 0 }] });
  const byAxes = new Map();
  for (const group of step.groups) {
    if (!byAxes.has(group.axes)) byAxes.set(group.axes, { name: group.axes, parts: [] });
    byAxes.get(group.axes).parts.push({ colour: kindColour(group.kind), text: `${kindText(group.kind)} of ${group.moves}`, seconds: group.seconds, hidden: group.hidden, group });
  }
  const sent = [...byAxes.values()];
  body.append(stepBars(plan, own, "work"), legend([...work.keys()].map((text, k) => [text, kinds[k]]).concat([["local copies", "kind-copy"]])));
  if (sent.length) {
    body.append(el("h3", { text: `Collectives over mesh axes (${secondsText(step.communication_s)} in all, on a scale of their own)` }), stepBars(plan, sent, "collectives"));
    body.append(legend([...new Set(step.groups.map((g) => g.kind))].map((kind) => [kindText(kind), kindColour(kind)]).concat([["hidden behind work in the estimate", "muted", true]])));
  }
  body.append(el("p", { class: "note", text: `Bounds: at least ${secondsText(v.seconds.lower)} (everything overlaps, ${v.bound_by} is busiest), estimate ${secondsText(v.seconds.estimate)}, at most ${secondsText(v.seconds.upper)} (nothing overlaps).` }));

  const resources = Object.entries(step.resources_s).sort((a, b) => b[1] - a[1]);
  body.append(el("h3", { text: "How busy each part of the machine is" }), el("div", { class: "bars" }, resources.map(([name, seconds]) =>
    el("div", { class: "bar-row" }, el("span", { class: "name", text: name }), el("div", { class: "track" }, el("div", { class: "bar plain", style: { width: `${Math.min(100, (100 * seconds) / v.seconds.estimate)}%` } })), el("span", { class: "said", text: secondsText(seconds) }), el("span", { class: "said", text: `${percentText(seconds / v.seconds.estimate, 0)} of the estimate` })))));

  const moves = plan.moves.value.map((_, k) => k).filter((k) => plan.moves.wire[k]);
  body.append(el("h3", { text: counted(moves.length, "collective") }));
  if (!moves.length) return;
  const t = (name) => (k) => plan.text(plan.moves[name][k]);
  const total = (k) => plan.moves.seconds[k] * plan.moves.times[k];
  const table = new Table({
    label: "Collectives", rows: moves, sortedBy: 5, pick: (k) => inspect({ move: k }),
    columns: [
      { title: "kind", width: "minmax(8rem, 1fr)", up: true, value: t("kind"), cell: (k) => el("span", {}, el("span", { class: "swatch", style: { background: `var(--${kindColour(t("kind")(k))})` } }), kindText(t("kind")(k))) },
      { title: "axes", width: "minmax(6rem, 1fr)", up: true, value: t("axes"), cell: t("axes") },
      { title: "value", width: "minmax(10rem, 3fr)", up: true, value: (k) => plan.valueName(plan.moves.value[k]), cell: (k) => plan.valueName(plan.moves.value[k]) },
      { title: "times", width: "5rem", right: true, value: (k) => plan.moves.times[k], cell: (k) => countText(plan.moves.times[k]) },
      { title: "bytes", width: "7rem", right: true, value: (k) => plan.moves.bytes[k], cell: (k) => bytesText(plan.moves.bytes[k]) },
      { title: "a step", width: "7rem", right: true, value: total, cell: (k) => secondsText(total(k)) },
    ],
  });
  table.node.classList.add("low");
  body.append(table.node);
}

/** Rows of stacked bars on one scale: solid what is waited for, pale what the estimate hides. */
function stepBars(plan, rows, label) {
  const sum = (row) => row.parts.reduce((a, p) => a + p.seconds, 0);
  const widest = Math.max(...rows.map(sum), 1e-30);
  return el("div", { class: "bars", role: "list", "aria-label": `seconds per step: ${label}` }, rows.map((row) => {
    const bar = el("div", { class: "track" });
    for (const part of row.parts) {
      const tip = [`${row.name}: ${part.text}`, `${secondsText(part.seconds)} a step, ${percentText(part.seconds / plan.verdict.seconds.upper)} of the serial sum`];
      if (part.group) {
        tip.push(`${percentText(part.hidden, 0)} hidden behind work in the estimate`, `${countText(part.group.times)} times, ${bytesText(part.group.bytes)}`);
        tip.push(`${digits(part.group.intensity)} FLOP/byte beside ${digits(part.group.machine)} of the machine: ${part.group.verdict} bound`);
      }
      for (const [share, pale] of [[1 - part.hidden, false], [part.hidden, true]]) {
        if (share <= 0) continue;
        const style = { width: `${(100 * part.seconds * share) / widest}%`, background: `var(--${part.colour})` };
        bar.append(el("div", { class: pale ? "bar part pale" : "bar part", style, on: { pointermove: (e) => showTip(tip, e.clientX, e.clientY), pointerleave: hideTip } }));
      }
    }
    const waited = row.parts.reduce((a, p) => a + p.seconds * (1 - p.hidden), 0);
    return el("div", { class: "bar-row", role: "listitem" }, el("span", { class: "name", text: row.name }), bar, el("span", { class: "said", text: secondsText(sum(row)) }), el("span", { class: "said", text: waited < sum(row) ? `${secondsText(waited)} waited for` : "" }));
  }));
}
