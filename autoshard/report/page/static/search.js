// How the gap closed: the search's own record where it was kept, and the stages with their prices.

function drawSearch(plan) {
  const body = section("gap"), { search, verdict: v } = plan;
  if (v.stages.length) {
    const head = ["stage", "all up to it costs", "bound", "gap", "its price"];
    body.append(el("div", { class: "wide" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, head.map((t) => el("th", { scope: "col", text: t })))), el("tbody", {}, v.stages.map((s) => el("tr", {}, el("th", { scope: "row", text: s.name }), [secondsText(s.cost_s), secondsText(s.bound_s), gapText(s.gap), secondsText(s.price_s)].map((text) => el("td", { text }))))))));
  }
  if (!search.length) {
    body.append(el("p", { class: "note", text: `Not known: times differ from run to run and are kept out of plans. Where run.json lies beside the plan and has the search in it, it is drawn here. In the end the plan takes ${secondsText(v.objective_s)} and none takes less than ${secondsText(v.bound_s)} (${v.counted}): a gap of ${gapText(v.gap)}.` }));
    return;
  }
  const LEFT = 70, BOTTOM = 30, TOP = 12, HEIGHT = 220;
  const last = Math.max(...search.map(([t]) => t), 1e-3);
  const costs = search.map(([, c]) => c), bounds = search.map(([, , b]) => b).filter((b) => b !== null);
  const searches = [...new Set(search.map(([, , , w]) => w))];
  const low = Math.min(...costs, ...bounds, v.bound_s), top = Math.max(...costs, v.bound_s);
  const spread = Math.max(top - low, 1e-4 * top) || 1, room = 0.08 * spread;  // less is no difference to be seen
  const marks = ticks(low, low + spread, 5);
  let places = 3;
  while (places < 8 && new Set(marks.map((s) => secondsText(s, places))).size < marks.length) places++;
  const draw = (c, width) => {
    const px = (t) => LEFT + (t / last) * (width - LEFT - 12), py = (s) => HEIGHT - BOTTOM - ((s - low + room) / (spread + 2 * room)) * (HEIGHT - BOTTOM - TOP);
    c.textBaseline = "middle";
    for (const s of marks) {
      c.strokeStyle = colour("line");
      c.beginPath(); c.moveTo(LEFT, py(s)); c.lineTo(width - 12, py(s)); c.stroke();
      c.fillStyle = colour("muted");
      c.textAlign = "right";
      c.fillText(secondsText(s, places), LEFT - 6, py(s));
    }
    c.textAlign = "center";
    for (const t of ticks(0, last, 8)) {
      const half = c.measureText(secondsText(t)).width / 2;
      c.fillText(secondsText(t), Math.min(px(t), width - half - 1), HEIGHT - BOTTOM + 10);
    }
    c.fillText("seconds since the search began", (LEFT + width) / 2, HEIGHT - 6);
    const line = (points, name) => {
      if (!points.length) return;
      c.strokeStyle = colour(name);
      c.lineWidth = 2;
      c.beginPath();
      points.forEach(([t, s], k) => {
        if (!k) c.moveTo(px(t), py(s));
        else { c.lineTo(px(t), py(points[k - 1][1])); c.lineTo(px(t), py(s)); }
      });
      c.stroke();
      const [t, s] = points.at(-1);  // where it ended, also where that is where it began
      c.fillStyle = colour(name);
      c.beginPath(); c.arc(px(t), py(s), 3, 0, 2 * Math.PI); c.fill();
    };
    for (const what of searches) {
      const own = search.filter(([, , , w]) => w === what);
      line(own.map(([t, s]) => [t, s]), "accent");
      const proved = own.filter(([, , b]) => b !== null).map(([t, , b]) => [t, b]);
      line(what === searches.at(-1) ? [...proved, [last, v.bound_s]] : proved, "bad");
      if (searches.length < 2) continue;
      c.fillStyle = colour("muted");
      c.textAlign = "left";
      c.fillText(fitted(c, what, width - px(own[0][0]) - 8), px(own[0][0]) + 3, TOP + 2);
    }
  };
  const chart = new Chart({ label: `Best plan and bound over ${secondsText(last)} of search; the gap at the end is ${gapText(v.gap)}.`, height: HEIGHT, draw });
  body.append(chart.node, legend([["best plan so far", "accent"], ["no plan takes less", "bad"]]));
  body.append(el("p", { class: "note", text: `Seconds of a step (${v.counted}), over seconds of wall clock, from run.json beside the plan. What is found without the memory limit may be a plan that does not fit; its bound holds all the same.` }));
}
