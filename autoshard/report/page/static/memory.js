// Memory over the program, by what it is for; a click shows what is held at that moment and where it is from.

function drawMemory(plan) {
  const body = section("memory"), { memory, verdict: v } = plan;
  const names = [...new Set(memory.group)];
  const sums = new Map(names.map((g) => [g, new Float64Array(memory.points + 1)]));
  memory.group.forEach((g, k) => {
    sums.get(g)[memory.start[k]] += memory.bytes[k];
    sums.get(g)[memory.stop[k]] -= memory.bytes[k];
  });
  const total = new Float64Array(memory.points);
  for (const series of sums.values()) {
    let now = 0;
    for (let t = 0; t < memory.points; t++) {
      now += series[t];
      series[t] = now;
      total[t] += now;
    }
  }
  // what is always there lies at the bottom: inputs first
  const spreads = new Map([...sums].map(([g, series]) => {
    let least = Infinity, most = 0;
    for (let t = 0; t < memory.points; t++) {
      least = Math.min(least, series[t]);
      most = Math.max(most, series[t]);
    }
    return [g, most - least];
  }));
  const held = new Set(memory.group.filter((_, k) => plan.text(plan.values.origin[memory.value[k]]) === "input" && !plan.text(memory.what[k]).includes(", resharded for ")));
  const order = names.sort((a, b) => held.has(b) - held.has(a) || spreads.get(a) - spreads.get(b));
  let peak = 0;
  for (let t = 1; t < memory.points; t++) if (total[t] > total[peak]) peak = t;
  const lines = [[v.memory.usable_bytes, `usable ${bytesText(v.memory.usable_bytes)}`], [v.limit_bytes, v.limit_bytes && `limit ${bytesText(v.limit_bytes)}`]].filter(([bytes, text]) => text && bytes < 4 * total[peak]);
  const high = Math.max(total[peak], ...lines.map(([bytes]) => bytes)) * 1.06 || 1;
  const LEFT = 70, BOTTOM = 26, TOP = 10, HEIGHT = 280;
  let width = 1, at = peak;
  const px = (t) => LEFT + (t / Math.max(1, memory.points - 1)) * (width - LEFT - 8);
  const py = (bytes) => HEIGHT - BOTTOM - (bytes / high) * (HEIGHT - BOTTOM - TOP);
  const point = (x) => Math.max(0, Math.min(memory.points - 1, Math.round(((x - LEFT) / (width - LEFT - 8)) * (memory.points - 1))));

  const draw = (c, w) => {
    width = w;
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const bytes of byteTicks(high, 6)) {
      c.strokeStyle = colour("line");
      c.beginPath(); c.moveTo(LEFT, py(bytes)); c.lineTo(w - 8, py(bytes)); c.stroke();
      c.fillStyle = colour("muted");
      c.fillText(bytesText(bytes), LEFT - 6, py(bytes));
    }
    // of all points that fall on one column the largest is drawn: no peak is lost
    const columns = [];
    const dense = memory.points > w - LEFT;
    for (let x = LEFT; x < w - 8; x++) {
      const from = Math.ceil(((x - 0.5 - LEFT) / (w - LEFT - 8)) * (memory.points - 1)), to = Math.floor(((x + 0.5 - LEFT) / (w - LEFT - 8)) * (memory.points - 1));
      let best = dense ? Math.max(0, from) : point(x);
      if (dense) for (let t = best; t <= to && t < memory.points; t++) if (total[t] > total[best]) best = t;
      columns.push([x, Math.min(best, memory.points - 1)]);
    }
    const base = new Float64Array(columns.length);
    order.forEach((g, i) => {
      const series = sums.get(g);
      c.fillStyle = colour(groupColour(i));
      c.beginPath();
      columns.forEach(([x], k) => (k ? c.lineTo(x, py(base[k])) : c.moveTo(x, py(base[k]))));
      for (let k = columns.length - 1; k >= 0; k--) {
        base[k] += series[columns[k][1]];
        c.lineTo(columns[k][0] + 0.5, py(base[k]));
      }
      c.fill();
    });
    c.setLineDash([5, 4]);
    lines.forEach(([bytes, text]) => {
      c.strokeStyle = c.fillStyle = colour("bad");
      c.beginPath(); c.moveTo(LEFT, py(bytes)); c.lineTo(w - 8, py(bytes)); c.stroke();
      c.textAlign = "right";
      c.fillText(text, w - 12, py(bytes) - 8);
    });
    c.setLineDash([]);
    c.strokeStyle = colour("text");
    c.lineWidth = 1.5;
    c.beginPath(); c.moveTo(px(at), TOP); c.lineTo(px(at), HEIGHT - BOTTOM); c.stroke();
    c.fillStyle = colour("text");
    c.beginPath(); c.arc(px(at), py(total[at]), 4, 0, 7); c.fill();
    c.fillStyle = colour("muted");
    c.textAlign = "center";
    c.fillText("points in time, in the order of the program", (LEFT + w) / 2, HEIGHT - 9);
  };
  const where = (t) => {
    if (t === 0) return "before the program";
    const op = memory.op_at[t];
    return op < 0 ? "after the program" : `${plan.opName(op)} ${plan.text(plan.ops.source[op])}`;
  };
  const say = el("h3", { "aria-live": "polite" });
  const table = new Table({
    label: "What is held", rows: [], pick: (k) => inspect({ value: memory.value[k] }),
    columns: [
      { title: "what", width: "minmax(12rem, 3fr)", up: true, value: (k) => plan.text(memory.what[k]), cell: (k) => plan.text(memory.what[k]) },
      { title: "for", width: "minmax(8rem, 1fr)", up: true, value: (k) => plan.text(memory.group[k]), cell: (k) => el("span", { class: "fit" }, el("span", { class: "swatch", style: { background: `var(--${groupColour(order.indexOf(memory.group[k]))})` } }), plan.text(memory.group[k])) },
      { title: "made at", width: "minmax(10rem, 2fr)", up: true, value: (k) => madeAt(plan, memory.value[k]), cell: (k) => madeAt(plan, memory.value[k]) },
      { title: "from – to", width: "8rem", right: true, value: (k) => memory.stop[k] - memory.start[k], cell: (k) => `${memory.start[k]} – ${memory.stop[k] - 1}` },
      { title: "bytes", width: "7rem", right: true, value: (k) => memory.bytes[k], cell: (k) => bytesText(memory.bytes[k]) },
    ],
    sortedBy: 4,
  });
  table.node.classList.add("low");
  const choose = (t) => {
    at = Math.max(0, Math.min(memory.points - 1, t));
    const held = [];
    for (let k = 0; k < memory.start.length; k++) if (memory.start[k] <= at && at < memory.stop[k]) held.push(k);
    table.setRows(held);
    say.textContent = `${bytesText(total[at])} in ${counted(held.length, "array")} at point ${at} of ${memory.points - 1}${at === peak ? ", the peak" : ""}: ${where(at)}`;
    chart.redraw();
  };
  const chart = new Chart({
    label: `Memory of one device at ${countText(memory.points)} points of the program, ${bytesText(total[peak])} at the peak. Arrow keys move the moment that is shown.`,
    height: HEIGHT, draw,
    hover: (x) => {
      if (x < LEFT) return null;
      const t = point(x);
      return [`${bytesText(total[t])} at point ${t}`, where(t), ...[...order].reverse().filter((g) => sums.get(g)[t] > 0).map((g) => `${plan.text(g)}: ${bytesText(sums.get(g)[t])}`)];
    },
    click: (x) => x >= LEFT && choose(point(x)),
    key: (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -Math.ceil(memory.points / 40), PageDown: Math.ceil(memory.points / 40) }[event.key];
      if (event.key === "p") choose(peak);
      else if (step !== undefined) choose(at + step);
      else return false;
      return true;
    },
  });
  choose(peak);
  body.append(chart.node, legend(order.map((g, i) => [plan.text(g), groupColour(i)])));
  body.append(el("div", { class: "tools" }, say, el("button", { type: "button", text: "to the peak", on: { click: () => choose(peak) } })), table.node);
}

function madeAt(plan, value) {
  const maker = plan.values.maker[value];
  if (maker >= 0) return plan.text(plan.ops.source[maker]) || plan.opName(maker);
  const origin = plan.text(plan.values.origin[value]);
  return origin === "arg" ? "the body of a loop" : origin === "const" ? "a constant of the program" : "an input of the program";
}
