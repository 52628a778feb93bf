// Several plans beside each other: the figures, what time is spent on, and inputs that are split in different ways.

function drawCompare(plans) {
  const place = document.getElementById("compare");
  place.hidden = plans.length < 2;
  document.querySelector('nav a[href="#compare"]').hidden = place.hidden;
  if (place.hidden) return;
  const body = section("compare");
  const figures = [
    ["step, estimate", (p) => p.verdict.seconds.estimate, secondsText, "less"], ["step, nothing overlaps", (p) => p.verdict.seconds.upper, secondsText, "less"],
    ["no plan under", (p) => p.verdict.bound_s, secondsText], ["gap", (p) => p.verdict.gap, gapText], ["MFU", (p) => p.verdict.mfu.estimate, (x) => percentText(x), "more"],
    ["compute", (p) => p.step.compute_s, secondsText, "less"], ["collectives", (p) => p.step.communication_s, secondsText, "less"], ["local copies", (p) => p.step.local_s, secondsText, "less"],
    ["memory at the peak", (p) => p.verdict.memory.peak_bytes, bytesText, "less"], ["devices", (p) => p.axes.reduce((n, a) => n * a.size, 1), countText], ["ops", (p) => p.count, countText],
  ];
  const words = [["file", (p) => p.name], ["machine", (p) => p.verdict.hardware], ["mesh", meshText], ["status", (p) => p.verdict.status]];
  const head = el("tr", {}, el("td"), plans.map((p) => el("th", { scope: "col", text: `${p.letter}: ${p.verdict.program}` })));
  const rows = words.map(([name, of]) => el("tr", {}, el("th", { scope: "row", text: name }), plans.map((p) => el("td", { text: of(p) }))));
  for (const [name, of, say, better] of figures) {
    const first = of(plans[0]);
    rows.push(el("tr", {}, el("th", { scope: "row", text: name }), plans.map((p, k) => {
      const now = of(p), ratio = first ? now / first - 1 : 0;
      const differs = k > 0 && better && Math.abs(ratio) >= 0.0005;
      const good = (ratio < 0) === (better === "less");
      return el("td", {}, say(now), differs ? el("span", { class: `delta ${good ? "good" : "bad"}`, text: ` ${ratio > 0 ? "+" : "−"}${digits(100 * Math.abs(ratio))}%` }) : null);
    })));
  }
  body.append(el("div", { class: "wide" }, el("table", { class: "plain" }, el("thead", {}, head), el("tbody", {}, rows))));

  const widest = Math.max(...plans.map((p) => p.verdict.seconds.upper));
  const kinds = new Set(["compute"]);
  const bars = plans.map((p) => {
    const sums = new Map([["compute", p.step.compute_s]]);
    for (const g of p.step.groups) sums.set(g.kind, (sums.get(g.kind) ?? 0) + g.seconds);
    if (p.step.local_s) sums.set("copy", p.step.local_s);
    const track = el("div", { class: "track" });
    for (const [kind, seconds] of sums) {
      kinds.add(kind);
      track.append(el("div", { class: "bar part", style: { width: `${(100 * seconds) / widest}%`, background: `var(--${kindColour(kind)})` }, title: `${kindText(kind)}: ${secondsText(seconds)}` }));
    }
    return el("div", { class: "bar-row" }, el("span", { class: "name", text: `${p.letter}: ${p.verdict.program}` }), track, el("span", { class: "said", text: secondsText(p.verdict.seconds.upper) }), el("span"));
  });
  body.append(el("h3", { text: "Seconds by kind, nothing overlaps" }), el("div", { class: "bars" }, bars), legend([...kinds].map((kind) => [kind === "copy" ? "local copies" : kindText(kind), kindColour(kind)])));

  const names = [...new Set(plans.flatMap((p) => [...p.inputNames.keys()]))];
  const told = (p, name) => (p.inputNames.has(name) ? p.shardingText(p.values.made[p.inputNames.get(name)]) : "");
  const local = (p, name) => (p.inputNames.has(name) ? p.localBytes(p.inputNames.get(name), p.values.made[p.inputNames.get(name)]) : 0);
  const different = names.filter((name) => new Set(plans.map((p) => told(p, name))).size > 1);
  body.append(el("h3", { text: `${counted(different.length, "input")} of ${countText(names.length)} split in different ways` }));
  if (!different.length) return;
  const table = new Table({
    label: "Inputs that differ", rows: different,
    columns: [
      { title: "path", width: "minmax(14rem, 2fr)", up: true, value: (n) => n, cell: (n) => n },
      ...plans.flatMap((p) => [
        { title: p.letter, width: "minmax(12rem, 2fr)", up: true, value: (n) => told(p, n), cell: (n) => (p.inputNames.has(n) ? typeNode(p, p.inputNames.get(n), p.values.made[p.inputNames.get(n)]) : "not in this plan") },
        { title: "on a device", width: "6.5rem", right: true, value: (n) => local(p, n), cell: (n) => bytesText(local(p, n)) },
      ]),
    ],
    sortedBy: 2,
  });
  table.node.classList.add("low");
  body.append(table.node);
}

function meshText(plan) {
  return plan.axes.map((axis) => `${axis.name}=${axis.size}`).join(" × ");
}
