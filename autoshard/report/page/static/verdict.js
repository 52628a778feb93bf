// The answer: seconds, utilisation, memory, and how sure that is; named strategies as bars.

function drawVerdict(plan) {
  const body = section("verdict"), v = plan.verdict;
  const cards = el("div", { class: "cards" });
  const card = (title, value, ...notes) =>
    cards.append(el("div", { class: "card" }, el("h3", { text: title }), el("p", { class: "big" }, value), ...notes.filter(Boolean).map((text) => el("p", { text }))));

  const tokens = v.batch ? `${manyText(v.batch / v.seconds.estimate)} tokens or rows a second` : "";
  card("Step", secondsText(v.seconds.estimate), "the estimate: part of the transfers is hidden behind work", tokens);
  card("MFU", percentText(v.mfu.estimate), `model ${flopText(v.flop)} a step, HFU ${percentText(v.hfu.estimate)}`, `busiest part: ${v.bound_by}`);

  const best = plan.bestBaseline;
  if (best) {
    const ratio = best.objective_s / v.objective_s;
    const share = Math.abs(ratio - 1);
    const word = share < 0.0005 ? "the same" : share < 0.1 ? `${digits(100 * share, 2)}% ${ratio > 1 ? "faster" : "slower"}` : `${digits(ratio)} × as fast`;
    card("Against the best baseline", word, `${best.name}: ${secondsText(best.objective_s)}; plan: ${secondsText(v.objective_s)} (${v.counted})`);
  } else card("Against the best baseline", "—", v.baselines.length ? "no named strategy has a plan here" : "the plan has no named strategies to compare with");

  const m = v.memory, limit = v.limit_bytes;
  const fits = m.peak_bytes > m.usable_bytes ? "does not fit" : m.fits ? "fits" : "may not fit";
  const badge = el("span", { class: `badge ${{ fits: "good", "may not fit": "fair", "does not fit": "bad" }[fits]}`, text: fits });
  card(
    "Memory per device", el("span", {}, bytesText(m.peak_bytes), " ", badge),
    `at the peak, ${bytesText(m.allocation_bytes)} with headroom; programs get ${bytesText(m.usable_bytes)} of ${bytesText(m.device_bytes)}`,
    limit === null ? "no limit" : `limit ${bytesText(limit)}, ${v.limit_from === "device" ? "of the device" : "stated"}`,
    m.host_bytes ? `${bytesText(m.host_bytes)} in host memory` : "",
  );
  const which = v.stages.length > 1 ? `of the last of ${v.stages.length} stages` : "under the same statements";
  card("Gap", gapText(v.gap), `no plan ${which} takes less than ${secondsText(v.bound_s)} (${v.counted})`, provedBy(v));
  body.append(cards);

  if (v.baselines.length) body.append(el("h3", { text: "Named strategies on the same program" }), baselineBars(plan));
  const axes = plan.axes.map((axis, k) => [`${axis.name}=${axis.size}${plan.machine.layout[axis.name] ? ` · ${plan.machine.layout[axis.name]}` : ""}`, axisColour(k)]);
  body.append(el("h3", { text: "Mesh axes" }), legend(axes));
  if (plan.stated.told.length) {
    body.append(el("details", {}, el("summary", { text: counted(plan.stated.told.length, "statement") }), el("ul", {}, plan.stated.told.map((text) => el("li", { class: "code", text })))));
  }
  if (v.notes.length) body.append(el("details", {}, el("summary", { text: counted(v.notes.length, "note") }), el("ul", {}, v.notes.map((text) => el("li", { text })))));
}

function provedBy(v) {
  if (v.certificate) {
    const of = v.certificate === "joint" ? "the optimum without stages" : "the plan's bound";
    return `${v.status}; with a certificate of ${of}, judged by autoshard verify`;
  }
  if (v.strategy) return `${v.status}; decided by ${v.strategy}; without a certificate`;
  return `${v.status}; without a certificate`;
}

function baselineBars(plan) {
  const v = plan.verdict;
  const rows = [{ name: "this plan", objective_s: v.objective_s, peak_bytes: v.memory.peak_bytes, own: true }, ...v.baselines];
  const widest = Math.max(...rows.map((row) => row.objective_s ?? 0), v.bound_s);
  const list = el("div", { class: "bars", role: "list", "aria-label": `seconds of a step (${v.counted})` });
  rows.sort((a, b) => (a.objective_s ?? Infinity) - (b.objective_s ?? Infinity));
  for (const row of rows) {
    const known = row.objective_s !== null;
    const bar = el("div", { class: "track" });
    if (known) {
      bar.append(el("div", { class: row.own ? "bar own" : "bar", style: { width: `${(100 * row.objective_s) / widest}%` } }));
      bar.append(el("div", { class: "bound", style: { left: `${(100 * v.bound_s) / widest}%` }, title: `no plan under ${secondsText(v.bound_s)}` }));
    } else bar.append(el("span", { class: "why", text: row.reason || "no plan", title: row.reason }));
    const said = known ? `${secondsText(row.objective_s)}${row.own ? "" : ` · ${digits(row.objective_s / v.objective_s, 4)} ×`}` : "no plan";
    list.append(el("div", { class: "bar-row", role: "listitem" }, el("span", { class: "name", text: row.name }), bar, el("span", { class: "said", text: said }), el("span", { class: "said", text: row.peak_bytes ? bytesText(row.peak_bytes) : "" })));
  }
  return el("div", {}, list, el("p", { class: "note", text: `Seconds (${v.counted}), which is what plans are compared by, and memory at the peak. The thin line is the bound that is proved.` }));
}
