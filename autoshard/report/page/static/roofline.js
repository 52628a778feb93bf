// A dot for every op: FLOP per byte against FLOP per second, under the roofs of the machine.

function drawRoofline(plan) {
  const body = section("roofline"), { ops, machine } = plan;
  const dots = new Map();
  let fused = 0, moving = 0, movingSeconds = 0, fusedSeconds = 0;
  for (let op = 0; op < plan.count; op++) {
    const flop = ops.flop[op], bytes = ops.bytes[op], seconds = ops.seconds[op];
    if (!seconds) continue;
    if (!bytes) { fused++; fusedSeconds += seconds; continue; }
    if (!flop) { moving++; movingSeconds += seconds; continue; }
    const each = seconds / (ops.times[op] || 1);
    const key = `${flop}/${bytes}/${ops.unit[op]}`;
    const found = dots.get(key);
    if (found) { found.ops.push(op); found.seconds += seconds; }
    else dots.set(key, { x: flop / bytes, y: flop / each, matmul: plan.text(ops.unit[op]) === "matmul", ops: [op], seconds });
  }
  const all = [...dots.values()].sort((a, b) => b.seconds - a.seconds);
  const byRate = new Map();
  for (const [dtype, rate] of Object.entries(machine.matmul)) byRate.set(rate, [...(byRate.get(rate) ?? []), dtype]);
  const roofs = [...byRate].map(([rate, dtypes]) => [`${dtypes.join(", ")} matmuls ${digits(rate / 1e12)} TFLOP/s`, rate]);
  roofs.push([`vector unit ${digits(machine.vector / 1e12)} TFLOP/s`, machine.vector]);
  const top = Math.max(...roofs.map(([, rate]) => rate)) * 3;
  const xs = all.map((d) => d.x), ys = all.map((d) => d.y);
  const x0 = Math.min(0.05, ...xs) / 2, x1 = Math.max(1e4, ...xs) * 2, y0 = Math.min(machine.bandwidth * 0.05, ...ys) / 2;
  const pad = { left: 86, right: 16, top: 14, bottom: 38 };
  let frame = { width: 1, height: 1 }, chosen = -1;
  const px = (x) => pad.left + ((Math.log(x) - Math.log(x0)) / (Math.log(x1) - Math.log(x0))) * (frame.width - pad.left - pad.right);
  const py = (y) => frame.height - pad.bottom - ((Math.log(y) - Math.log(y0)) / (Math.log(top) - Math.log(y0))) * (frame.height - pad.top - pad.bottom);
  const most = all.length ? all[0].seconds : 1;
  const radius = (dot) => 2.5 + 9 * Math.sqrt(dot.seconds / most);

  const told = (dot) => {
    const op = dot.ops[0], more = dot.ops.length - 1;
    return [
      plan.opName(op) + (more ? ` and ${countText(more)} like it` : ""), plan.text(ops.source[op]),
      `${digits(dot.x)} FLOP/byte, ${digits(dot.y / 1e12)} TFLOP/s on a device`,
      `${secondsText(dot.seconds)} a step, ${percentText(dot.seconds / plan.verdict.seconds.estimate)} of it`,
    ].filter(Boolean);
  };
  const draw = (c, width, height) => {
    frame = { width, height };
    c.strokeStyle = colour("line");
    c.fillStyle = colour("muted");
    c.lineWidth = 1;
    c.textAlign = "center";
    for (let e = Math.ceil(Math.log10(x0)); e <= Math.log10(x1); e++) {
      const x = px(10 ** e);
      c.beginPath(); c.moveTo(x, pad.top); c.lineTo(x, height - pad.bottom); c.stroke();
      c.fillText(e < -2 || e > 3 ? `1e${e}` : String(Number((10 ** e).toPrecision(1))), x, height - pad.bottom + 15);
    }
    c.fillText("FLOP per byte of memory", (pad.left + width - pad.right) / 2, height - 6);
    c.textAlign = "right";
    for (let e = Math.ceil(Math.log10(y0)); e <= Math.log10(top); e++) {
      const y = py(10 ** e);
      c.beginPath(); c.moveTo(pad.left, y); c.lineTo(width - pad.right, y); c.stroke();
      c.fillText(flopText(10 ** e) + "/s", pad.left - 6, y + 4);
    }
    c.save();
    c.beginPath(); c.rect(pad.left, pad.top, width - pad.left - pad.right, height - pad.top - pad.bottom); c.clip();
    for (const [name, rate] of roofs) {
      const ridge = rate / machine.bandwidth;
      c.strokeStyle = colour("text");
      c.lineWidth = 1.5;
      c.beginPath(); c.moveTo(px(x0), py(x0 * machine.bandwidth)); c.lineTo(px(ridge), py(rate)); c.lineTo(px(x1), py(rate)); c.stroke();
      c.fillStyle = colour("text");
      c.textAlign = "right";
      c.fillText(name, width - pad.right - 6, py(rate) - 13);
    }
    c.save();
    const from = [px(x0), py(x0 * machine.bandwidth)], to = [px(x1), py(x1 * machine.bandwidth)];
    c.translate(px(x0 * 12), py(x0 * 12 * machine.bandwidth));
    c.rotate(Math.atan2(to[1] - from[1], to[0] - from[0]));
    c.textAlign = "left";
    c.fillText(`memory ${digits(machine.bandwidth / 1e9)} GB/s`, 0, -6);
    c.restore();
    all.forEach((dot, k) => {
      c.globalAlpha = 0.6;
      c.fillStyle = colour(dot.matmul ? "accent" : "kind-scatter");
      c.beginPath(); c.arc(px(dot.x), py(dot.y), radius(dot), 0, 7); c.fill();
      c.globalAlpha = 1;
      if (k === chosen) {
        c.strokeStyle = colour("text"); c.lineWidth = 2; c.stroke();
      }
    });
    c.restore();
  };
  const near = (x, y) => {
    let found = -1, least = 14;
    all.forEach((dot, k) => {
      const away = Math.hypot(px(dot.x) - x, py(dot.y) - y) - radius(dot);
      if (away < least) { least = away; found = k; }
    });
    return found;
  };
  const choose = (k) => {
    chosen = k;
    chart.redraw();
    inspect({ op: all[k].ops[0] });
    announce(told(all[k]).join(", "));
  };
  const chart = new Chart({
    label: `Roofline of ${counted(all.length, "group")} of ops alike. Arrow keys go through them, those that take longest first.`,
    height: 380, draw,
    hover: (x, y) => { const k = near(x, y); return k < 0 ? null : told(all[k]); },
    click: (x, y) => { const k = near(x, y); if (k >= 0) choose(k); },
    key: (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step === undefined || !all.length) return false;
      choose(Math.max(0, Math.min(all.length - 1, chosen + step)));
      return true;
    },
  });
  body.append(chart.node, legend([["matmuls and convolutions", "accent"], ["other ops", "kind-scatter"]]));
  body.append(el("p", { class: "note", text: `The area of a dot is the time it takes. The cost model is the roofline itself, so dots lie on the roofs: what matters is on which one, and how large they are. Not drawn: ${counted(moving, "op")} that only move data (${secondsText(movingSeconds)}), ${countText(fused)} fused into others without bytes of their own (${secondsText(fusedSeconds)}).` }));
}
