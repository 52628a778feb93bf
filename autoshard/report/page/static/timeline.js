// A step as the cost model has it: ops and collectives in the order of the program, on lanes.

function drawTimeline(plan) {
  const body = section("timeline"), { events, moves, rows } = plan;
  const count = events.op.length;
  let overlapped = true, clock = onTheClock(plan, true), view = [0, clock.total || 1], chosen = -1;

  // lanes: two levels of the outline, compute, one for each set of axes, local copies
  const lanes = [{ name: "program", outline: 0 }, { name: "", outline: 1 }, { name: "compute" }];
  const byAxes = new Map();
  const laneOf = new Int32Array(count);
  const used = new Set(Array.from(events.move).filter((m) => m >= 0 && moves.wire[m]).map((m) => moves.axes[m]));
  for (const axes of [...used].sort((a, b) => plan.text(a).localeCompare(plan.text(b)))) {
    byAxes.set(axes, lanes.length);
    lanes.push({ name: plan.text(axes) });
  }
  const copies = lanes.length;
  lanes.push({ name: "local copies" });
  for (let k = 0; k < count; k++) {
    const m = events.move[k];
    laneOf[k] = m < 0 ? 2 : moves.wire[m] ? byAxes.get(moves.axes[m]) : copies;
  }
  const spans = outlineSpans(plan);
  const HEIGHT = 26, LEFT = 108, TOP = 22;
  const height = TOP + lanes.length * HEIGHT + 8;
  let width = 1;
  const px = (t) => LEFT + ((t - view[0]) / (view[1] - view[0])) * (width - LEFT - 8);
  const time = (x) => view[0] + ((x - LEFT) / (width - LEFT - 8)) * (view[1] - view[0]);

  const fill = (k) => (events.move[k] < 0 ? "kind-compute" : kindColour(plan.text(moves.kind[events.move[k]])));
  const draw = (c, w) => {
    width = w;
    c.textBaseline = "middle";
    lanes.forEach((lane, i) => {
      c.fillStyle = colour(i % 2 ? "stripe" : "panel");
      c.fillRect(0, TOP + i * HEIGHT, w, HEIGHT);
      c.fillStyle = colour("muted");
      c.textAlign = "left";
      c.fillText(fitted(c, lane.name, LEFT - 12), 6, TOP + i * HEIGHT + HEIGHT / 2);
    });
    c.strokeStyle = colour("line");
    c.textAlign = "center";
    for (const t of ticks(view[0], view[1], (w - LEFT) / 110)) {
      const x = px(t);
      c.beginPath(); c.moveTo(x, TOP - 4); c.lineTo(x, height); c.stroke();
      c.fillStyle = colour("muted");
      c.fillText(secondsText(t), x, 9);
    }
    c.save();
    c.beginPath(); c.rect(LEFT, 0, w - LEFT - 8, height); c.clip();
    for (const span of spans) drawSpan(c, span, { px, top: TOP, height: HEIGHT, left: LEFT }, clock);
    const last = new Float64Array(lanes.length).fill(-1);
    for (let k = 0; k < count; k++) {
      const y = TOP + laneOf[k] * HEIGHT;
      if (clock.to[k] > clock.from[k] && clock.to[k] >= view[0] && clock.from[k] <= view[1]) {
        c.globalAlpha = 0.35;
        c.fillStyle = colour(fill(k));
        c.fillRect(px(clock.from[k]), y + 9, Math.max(0.5, px(clock.to[k]) - px(clock.from[k])), HEIGHT - 18);
        c.globalAlpha = 1;
      }
      if (clock.stop[k] < view[0] || clock.start[k] > view[1]) continue;
      const x = px(clock.start[k]), right = Math.max(px(clock.stop[k]), x + 0.6);
      if (right - last[laneOf[k]] < 0.5 && k !== chosen) continue;
      last[laneOf[k]] = right;
      c.fillStyle = colour(fill(k));
      c.fillRect(x, y + 4, right - x > 3 ? right - x - 0.5 : right - x, HEIGHT - 8);
      if (right - x > 46) {
        c.fillStyle = "#fff";
        c.textAlign = "left";
        c.fillText(fitted(c, name(k), right - x - 8), x + 4, y + HEIGHT / 2 + 0.5);
      }
    }
    if (chosen >= 0) {
      const x = px(clock.start[chosen]);
      c.strokeStyle = colour("text");
      c.lineWidth = 2;
      c.strokeRect(x, TOP + laneOf[chosen] * HEIGHT + 3, Math.max(3, px(clock.stop[chosen]) - x), HEIGHT - 6);
    }
    c.restore();
  };
  const name = (k) => (events.move[k] < 0 ? plan.opName(events.op[k]) : `${kindText(plan.text(moves.kind[events.move[k]]))} ${plan.valueName(moves.value[events.move[k]])}`);
  const told = (k) => {
    const lines = [name(k), `${secondsText(events.seconds[k])} a step, from ${secondsText(clock.start[k])}`];
    const m = events.move[k];
    if (m >= 0) {
      lines.push(plan.text(moves.where[m]));
      if (moves.wire[m]) lines.push(`over ${plan.text(moves.axes[m])}, ${bytesText(moves.bytes[m])}, ${percentText(events.hidden[k], 0)} hidden in the estimate`);
    } else lines.push(plan.text(plan.ops.source[events.op[k]]));
    const times = m >= 0 ? moves.times[m] : plan.ops.times[events.op[k]];
    if (times !== 1) lines.push(`${countText(times)} executions together`);
    return lines.filter(Boolean);
  };
  const find = (x, y) => {
    const lane = Math.floor((y - TOP) / HEIGHT), t = time(x), slack = 3 * (time(1) - time(0));
    if (x < LEFT || lane < 2 || lane >= lanes.length) return -1;
    let found = -1, least = Infinity;
    for (let k = 0; k < count; k++) {
      if (laneOf[k] !== lane) continue;
      const away = Math.max(0, clock.start[k] - t, t - clock.stop[k]);
      if (away <= slack && away < least) { least = away; found = k; }
    }
    if (found < 0) for (let k = 0; k < count; k++) if (laneOf[k] === lane && clock.from[k] <= t && t <= clock.to[k] && clock.to[k] > clock.from[k]) return k;
    return found;
  };
  const spanAt = (x, y) => spans.findLast((s) => s.level === Math.floor((y - TOP) / HEIGHT) && clock.start[s.first] <= time(x) && time(x) <= clock.stop[s.last]);
  const setView = (from, to) => {
    const least = Math.max(clock.total / 1e7, 1e-12), size = Math.min(Math.max(to - from, least), clock.total || 1);
    const start = Math.max(0, Math.min(from, clock.total - size));
    view = [start, start + size];
    chart.redraw();
  };
  const zoom = (factor, x = (LEFT + width) / 2) => {
    const t = time(x);
    setView(t - (t - view[0]) * factor, t + (view[1] - t) * factor);
  };
  const choose = (k) => {
    chosen = k;
    if (clock.stop[k] < view[0] || clock.start[k] > view[1]) setView(clock.start[k] - (view[1] - view[0]) / 2, clock.start[k] + (view[1] - view[0]) / 2);
    chart.redraw();
    inspect(events.move[k] >= 0 ? { move: events.move[k] } : { op: events.op[k] });
    announce(told(k).join(", "));
  };
  const chart = new Chart({
    label: `Timeline of ${counted(count, "event")}. Left and right arrows go from event to event, plus and minus zoom, 0 shows all.`,
    height, draw, zoom, pan: (dx) => setView(view[0] - (time(dx) - time(0)), view[1] - (time(dx) - time(0))),
    hover: (x, y) => {
      const k = find(x, y);
      if (k >= 0) return told(k);
      const span = x > LEFT && spanAt(x, y);
      return span ? [span.text, `${secondsText(clock.stop[span.last] - clock.start[span.first])} of the step`] : null;
    },
    click: (x, y) => {
      const k = find(x, y), span = k < 0 && x > LEFT && spanAt(x, y);
      if (k >= 0) choose(k);
      else if (span) setView(clock.start[span.first], clock.stop[span.last]);
    },
    key: (event) => {
      if (event.key === "+" || event.key === "=") zoom(0.6);
      else if (event.key === "-") zoom(1 / 0.6);
      else if (event.key === "0") setView(0, clock.total);
      else if (event.key === "ArrowRight" && count) choose(Math.min(count - 1, chosen + 1));
      else if (event.key === "ArrowLeft" && count) choose(Math.max(0, chosen - 1));
      else return false;
      return true;
    },
  });
  const say = el("p", { class: "note" });
  const tell = () => {
    const v = plan.verdict, estimate = v.seconds.estimate;
    const bounded = Math.abs(clock.total - estimate) > 1e-3 * estimate ? ` The estimate itself is ${secondsText(estimate)}, the busiest part of the machine.` : "";
    say.textContent = overlapped
      ? `The estimate: ${secondsText(clock.total)}. Events follow one another in the order of the program; of each collective only the share that is not hidden takes time (solid), the hidden share is pale, before what it is fetched for or behind what it sends. Shares are those of ${v.hardware}'s profile; collectives between matmuls are waited for.${bounded}`
      : `Serial: ${secondsText(clock.total)}. Nothing overlaps; this sum is what the solver minimises.`;
    say.textContent += " The body of a loop is there once, with the time of all its trips.";
  };
  const mode = switcher("What overlaps", [[true, "estimate"], [false, "serial"]], true, (value) => {
    const share = view.map((t) => t / (clock.total || 1));
    overlapped = value;
    clock = onTheClock(plan, value);
    tell();
    setView(share[0] * clock.total, share[1] * clock.total);
  });
  const buttons = el("div", { class: "switch" }, [["+", "Zoom in", () => zoom(0.6)], ["−", "Zoom out", () => zoom(1 / 0.6)], ["all", "Show all", () => setView(0, clock.total)]].map(([text, label, click]) => el("button", { type: "button", text, "aria-label": label, title: label, on: { click } })));
  tell();
  body.append(el("div", { class: "tools" }, mode, buttons, el("span", { class: "hint", text: "drag to pan, Ctrl or Shift and wheel to zoom, click a span of the program to go there" })), chart.node, say);
  const kinds = [...new Set(Array.from(events.move).filter((m) => m >= 0 && moves.wire[m]).map((m) => plan.text(moves.kind[m])))];
  body.append(legend([["compute", "kind-compute"], ...kinds.map((kind) => [kindText(kind), kindColour(kind)]), ["hidden", "muted", true]]));
}

/** Rows of the outline's first two levels as ranges of events. */
function outlineSpans(plan) {
  return plan.once("spans", () => {
    const { rows, events } = plan, tree = treeOf(plan);
    const first = new Map(), last = new Map();
    events.op.forEach((op, k) => {
      if (op < 0) return;
      if (!first.has(op)) first.set(op, k);
      last.set(op, k);
    });
    const found = [];
    const level0 = [];
    for (let i = 0; i < rows.depth.length; i++) if (rows.depth[i] === 0 && tree.end[i] > i + 1) level0.push(i);
    const put = (i, level) => {
      let a = Infinity, b = -1;
      for (let op = tree.firstOp[i]; op <= tree.lastOp[i]; op++) {
        if (first.has(op)) { a = Math.min(a, first.get(op)); b = Math.max(b, last.get(op)); }
      }
      if (b >= a) found.push({ level, first: a, last: b, text: rowText(plan, i), phase: plan.text(rows.phase[i]) });
    };
    for (const i of level0) {
      put(i, 0);
      for (let j = i + 1; j < tree.end[i]; j = tree.end[j]) if (tree.end[j] > j + 1) put(j, 1);
    }
    return found;
  });
}

function drawSpan(c, span, { px, top, height, left }, clock) {
  const x = px(clock.start[span.first]), right = px(clock.stop[span.last]);
  if (right - x < 1) return;
  const y = top + span.level * height;
  c.fillStyle = colour("span");
  c.fillRect(x, y + 3, right - x - 1, height - 6);
  if (right - x > 30) {
    c.fillStyle = colour("text");
    c.textAlign = "left";
    c.fillText(fitted(c, span.text, right - Math.max(x, left) - 10), Math.max(x, left) + 5, y + height / 2 + 0.5);
  }
}
