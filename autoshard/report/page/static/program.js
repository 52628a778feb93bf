// The program folded by regions, layers and scopes: a tree of which only the rows that are seen exist.

/** Where the rows below a row end, and which ops they are. */
function treeOf(plan) {
  return plan.once("tree", () => {
    const { depth, op } = plan.rows, count = depth.length;
    const end = new Int32Array(count), parent = new Int32Array(count).fill(-1);
    const firstOp = new Int32Array(count), lastOp = new Int32Array(count).fill(-1);
    const open = [];
    for (let i = 0; i < count; i++) {
      while (open.length && depth[open.at(-1)] >= depth[i]) end[open.pop()] = i;
      parent[i] = open.length ? open.at(-1) : -1;
      open.push(i);
    }
    for (const i of open) end[i] = count;
    for (let i = count - 1; i >= 0; i--) {
      if (op[i] >= 0) {
        firstOp[i] = op[i];
        lastOp[i] = Math.max(lastOp[i], op[i]);
      } else if (i + 1 < end[i]) firstOp[i] = firstOp[i + 1];
      if (parent[i] >= 0) lastOp[parent[i]] = Math.max(lastOp[parent[i]], lastOp[i]);
    }
    const rowOf = new Int32Array(plan.count).fill(-1);
    op.forEach((k, i) => k >= 0 && (rowOf[k] = i));
    return { end, parent, firstOp, lastOp, rowOf };
  });
}

function rowText(plan, row) {
  const op = plan.rows.op[row];
  const label = plan.text(plan.rows.label[row]);
  return op < 0 ? label : label ? `${label} (${plan.opName(op)})` : plan.opName(op);
}

/** Sums over all ops before each, so that a group's sum is a difference. */
function prefixSums(column) {
  const out = new Float64Array(column.length + 1);
  for (let k = 0; k < column.length; k++) out[k + 1] = out[k] + column[k];
  return out;
}

let programPanel = null;

function drawProgram(plan) {
  const body = section("program"), { rows, ops } = plan, tree = treeOf(plan), count = rows.depth.length;
  const compute = prefixSums(ops.seconds), wire = prefixSums(plan.around.wire);
  const open = new Uint8Array(count);
  let visible = [], matched = null, hits = [];

  // what a search looks in: made when it is first wanted
  const haystack = () => plan.once("haystack", () => Array.from({ length: plan.count }, (_, op) => {
    const values = plan.resultsOf(op).map((v) => `${plan.valueName(v)} ${plan.text(plan.values.type[v])} ${plan.text(plan.values.tags[v])} ${plan.shardingText(plan.formOf(v))}`);
    const read = plan.operandsOf(op).filter(({ value }) => plan.values.maker[value] < 0).map(({ value }) => plan.valueName(value));
    return [plan.opName(op), plan.text(ops.source[op]), plan.text(ops.phase[op]), ...values, ...read].join(" ").toLowerCase();
  }));

  const list = () => {
    visible = [];
    for (let i = 0; i < count; ) {
      if (matched && !matched[i]) {
        i = tree.end[i];
        continue;
      }
      visible.push(i);
      i = matched || open[i] ? i + 1 : tree.end[i];
    }
    scroller.setCount(visible.length);
  };
  const search = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    matched = null;
    hits = [];
    if (words.length) {
      matched = new Uint8Array(count);
      const stack = haystack();
      for (let op = 0; op < plan.count; op++) {
        if (!words.every((word) => stack[op].includes(word))) continue;
        hits.push(op);
        for (let i = tree.rowOf[op]; i >= 0 && !matched[i]; i = tree.parent[i]) matched[i] = 1;
      }
    }
    found.textContent = words.length ? `${countText(hits.length)} of ${counted(plan.count, "op")}` : "";
    scroller.node.scrollTop = 0;
    list();
    if (hits.length) scroller.move(visible.indexOf(tree.rowOf[hits[0]]));
  };
  const toggle = (at, to) => {
    const i = visible[at];
    if (tree.end[i] <= i + 1) return;
    open[i] = to ?? !open[i];
    list();
  };
  const pick = (at) => {
    const op = rows.op[visible[at]];
    if (op >= 0) inspect({ op });
  };
  const key = (event, at) => {
    const i = visible[at];
    if (i === undefined) return false;
    const folds = tree.end[i] > i + 1;
    if (event.key === "ArrowRight") {
      if (folds && !open[i]) toggle(at, 1);
      else if (folds) scroller.move(at + 1);
    } else if (event.key === "ArrowLeft") {
      if (folds && open[i]) toggle(at, 0);
      else if (tree.parent[i] >= 0) scroller.move(visible.indexOf(tree.parent[i]));
    } else if ((event.key === "Enter" || event.key === " ") && rows.op[i] < 0) toggle(at);
    else return false;
    return true;
  };

  const head = el("div", { class: "head", role: "row" }, ["program", "result, cut by", "on a device", "compute", "transfers", "source"].map((title, k) => el("div", { role: "columnheader", class: k === 3 || k === 4 ? "cell right" : "cell", text: title })));
  const scroller = new Scroller({
    label: "Program. Right and left arrows unfold and fold, Enter shows an op.", role: "treegrid", head, key, columns: "minmax(19rem, 3fr) minmax(13rem, 2.4fr) minmax(7.5rem, 1.2fr) 6rem 6rem minmax(8rem, 1.4fr)",
    draw: (at, row) => fillRow(visible[at], row),
    pick: (at, event) => {
      const i = visible[at];
      if (event.target.closest?.(".fold") || rows.op[i] < 0) toggle(at);
      else pick(at);
    },
  });
  const fillRow = (i, row) => {
    const op = rows.op[i], folds = tree.end[i] > i + 1, shown = matched ? true : Boolean(open[i]);
    row.setAttribute("aria-level", rows.depth[i] + 1);
    if (folds) row.setAttribute("aria-expanded", String(shown));
    const phase = plan.text(rows.phase[i]);
    const name = el("div", { role: "gridcell", class: "cell name", style: { "padding-left": `${0.4 + rows.depth[i] * 1.1}rem` } },
      el("span", { class: folds ? "fold" : "leaf", "aria-hidden": "true", text: folds ? (shown ? "▾" : "▸") : "" }),
      el("span", { class: folds ? "group" : "op", text: rowText(plan, i) }),
      folds ? el("span", { class: "many", text: `${countText(tree.lastOp[i] - tree.firstOp[i] + 1)} ops` }) : null,
      op >= 0 && plan.text(ops.rule[op]).endsWith("trips") ? el("span", { class: "many", text: plan.text(ops.rule[op]) }) : null,
      (op < 0 || folds) && phase ? el("span", { class: `phase ${phase}`, text: phase }) : null);
    name.title = rowText(plan, i);
    const result = op >= 0 ? plan.resultsOf(op)[0] : undefined, layout = result === undefined ? -1 : plan.formOf(result);
    const local = result === undefined ? "" : `[${plan.localShape(result, layout).join(", ")}]`;
    const a = tree.firstOp[i], b = tree.lastOp[i] + 1;
    const seconds = compute[b] - compute[a], sent = wire[b] - wire[a];
    row.append(
      name, el("div", { role: "gridcell", class: "cell" }, result === undefined ? "" : typeNode(plan, result, layout)), el("div", { role: "gridcell", class: "cell dim", text: local, title: local }),
      timeCell(seconds, compute[plan.count]), timeCell(sent, wire[plan.count], "kind-gather"),
      el("div", { role: "gridcell", class: "cell dim", text: op >= 0 ? plan.text(ops.source[op]) : "", title: op >= 0 ? plan.text(ops.source[op]) : "" }),
    );
  };

  const found = el("span", { class: "hint", role: "status" });
  const input = el("input", { type: "search", id: "search", placeholder: "Search names, kinds, sources, shardings  ( / )", "aria-label": "Search the program", spellcheck: "false", autocomplete: "off" });
  input.addEventListener("input", () => search(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && hits.length) pick(scroller.current);
    if (event.key === "ArrowDown") scroller.node.focus();
    if (event.key === "Escape") {
      input.value = "";
      search("");
    }
    event.stopPropagation();
  });
  const all = (to) => {
    for (let i = 0; i < count; i++) open[i] = tree.end[i] > i + 1 ? to : 0;
    list();
  };
  scroller.node.classList.add("tall");
  list();
  body.append(
    el("div", { class: "tools" }, input, found, el("div", { class: "switch" }, el("button", { type: "button", text: "unfold all", on: { click: () => all(1) } }), el("button", { type: "button", text: "fold all", on: { click: () => all(0) } }))),
    legend(plan.axes.map((axis, k) => [`cut by ${axis.name}`, axisColour(k)])), scroller.node,
  );
  programPanel = {
    input,
    reveal(op) {
      input.value = "";
      matched = null;
      found.textContent = "";
      for (let i = tree.parent[tree.rowOf[op]]; i >= 0; i = tree.parent[i]) open[i] = 1;
      list();
      scroller.move(visible.indexOf(tree.rowOf[op]));
      scroller.node.scrollIntoView({ block: "nearest" });
    },
  };
}

function timeCell(seconds, whole, name = "kind-compute") {
  const share = whole > 0 ? (100 * seconds) / whole : 0;
  const meter = el("span", { class: "meter", style: { width: `${share}%`, background: `var(--${name})` }, "aria-hidden": "true" });
  return el("div", { role: "gridcell", class: "cell right time" }, meter, el("span", { text: seconds > 0 ? secondsText(seconds) : "" }));
}
