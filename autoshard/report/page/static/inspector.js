// Details of one thing at a time: an op, a value, an output or a transfer, with ways from one to the next.

const trail = [];
let inspected = null;

/** what: {op}, {value}, {output} or {move}, by number in the plan that is shown. */
function inspect(what, remember = true) {
  const plan = shownPlan();
  if (remember && inspected) trail.push(inspected);
  inspected = what;
  const pane = document.getElementById("inspector"), body = pane.querySelector(".body");
  pane.classList.add("open");
  pane.querySelector(".back").disabled = !trail.length;
  let node;
  if (what.op !== undefined) node = opDetails(plan, what.op);
  else if (what.move !== undefined) node = moveDetails(plan, what.move);
  else if (what.output !== undefined) node = outputDetails(plan, what.output);
  else node = valueDetails(plan, what.value);
  body.replaceChildren(node);
  body.scrollTop = 0;
}

function closeInspector() {
  trail.length = 0;
  inspected = null;
  const pane = document.getElementById("inspector");
  pane.classList.remove("open");
  pane.querySelector(".back").disabled = true;
  pane.querySelector(".body").replaceChildren(el("p", { class: "note", text: "Choose an op, a value or a transfer in any panel to see where it lies and why." }));
}

function link(text, what) {
  return el("button", { type: "button", class: "link", text, on: { click: () => inspect(what) } });
}

function opLink(plan, op) {
  return op < 0 ? "" : link(plan.opName(op), { op });
}

function valueLink(plan, value) {
  const literal = plan.values.literals[value];
  return literal !== undefined ? el("span", { class: "code", text: literal }) : link(plan.valueName(value), { value });
}

function opDetails(plan, op) {
  const { ops } = plan, flop = ops.flop[op], bytes = ops.bytes[op], seconds = ops.seconds[op], times = ops.times[op];
  const matmul = plan.text(ops.unit[op]) === "matmul", peak = matmul ? plan.machine.matmul[plan.text(ops.dtype[op])] : plan.machine.vector;
  const bound = flop / peak >= bytes / plan.machine.bandwidth ? (matmul ? "matrix unit" : "vector unit") : "memory";
  const node = el("div", {}, el("h3", { text: plan.opName(op) }), facts([
    ["source", plan.text(ops.source[op])],
    ["pass", plan.text(ops.phase[op])],
    ["rule", el("span", { class: "code", text: plan.text(ops.rule[op]) })],
    ["cut along", plan.text(ops.cut[op]) || (plan.text(ops.rule[op]).startsWith("(") ? "nothing: every device does the same" : "")],
    ["a step", seconds ? `${secondsText(seconds)}, ${percentText(seconds / plan.verdict.seconds.estimate)} of the estimate` : ""],
    ["executions", times > 1 ? countText(times) : ""],
    ["each", flop || bytes ? `${flopText(flop)}, ${bytesText(bytes)} of memory traffic` : ""],
    ["bound by", seconds ? bound : ""],
    ["transfers", plan.around.wire[op] ? `${secondsText(plan.around.wire[op])} a step, ${secondsText(plan.around.waited[op])} waited for` : ""],
  ]));
  const operands = plan.operandsOf(op);
  if (operands.length) {
    node.append(el("h4", { text: "reads" }), el("ul", { class: "list" }, operands.map(({ value, wants }) => {
      const literal = plan.values.literals[value] !== undefined;
      return el("li", {}, valueLink(plan, value), literal ? null : el("div", {}, typeNode(plan, value, wants >= 0 ? wants : plan.formOf(value))));
    })));
  }
  const results = plan.resultsOf(op);
  node.append(el("h4", { text: "makes" }), el("ul", { class: "list" }, results.map((value) => el("li", {}, valueLink(plan, value), el("div", {}, typeNode(plan, value, plan.values.made[value]))))));
  const around = plan.grouped("moves of ops", plan.moves.op).get(op) ?? [];
  if (around.length) node.append(el("h4", { text: "transfers for it" }), moveList(plan, around));
  node.append(el("button", { type: "button", class: "wide-button", text: "show in the program", on: { click: () => programPanel?.reveal(op) } }));
  return node;
}

function moveList(plan, moves) {
  return el("ul", { class: "list" }, moves.map((k) => {
    const axes = plan.text(plan.moves.axes[k]);
    return el("li", {}, link(`${kindText(plan.text(plan.moves.kind[k]))}${axes ? ` over ${axes}` : ""}`, { move: k }), el("div", { class: "dim", text: `${secondsText(plan.moves.seconds[k] * plan.moves.times[k])} a step · ${bytesText(plan.moves.bytes[k])} · ${plan.text(plan.moves.where[k])}` }));
  }));
}

function valueDetails(plan, value) {
  const { values } = plan, made = values.made[value], form = plan.formOf(value);
  const maker = values.maker[value], input = plan.inputs.value.indexOf(value);
  const origin = maker >= 0 ? el("span", {}, opLink(plan, maker), ` ${plan.text(plan.ops.source[maker])}`) : madeAt(plan, value) + (plan.inputs.donated.includes(input) ? ", donated" : "");
  const node = el("div", {}, el("h3", { text: plan.valueName(value) }), el("p", {}, typeNode(plan, value, form)), facts([
    ["sharding", el("span", { class: "code", text: plan.shardingText(form) })],
    ["made in", made !== form ? el("span", { class: "code", text: `${plan.shardingText(made)}, resharded once for all its uses` }) : ""],
    ["on a device", `[${plan.localShape(value, form).join(", ")}], ${bytesText(plan.localBytes(value, form))}`],
    ["whole", bytesText(plan.typeOf(value).shape.reduce((a, b) => a * b, 1) * values.item_bytes[value])],
    ["tags", plan.text(values.tags[value])],
    ["made by", origin],
  ]));
  node.append(...whoStated(plan, value));
  const held = plan.heldOf(value);
  node.append(el("h4", { text: "held" }), held.length
    ? el("ul", { class: "list" }, held.map((k) => el("li", { text: `${bytesText(plan.memory.bytes[k])} from point ${plan.memory.start[k]} to ${plan.memory.stop[k] - 1}: ${plan.text(plan.memory.what[k])}` })))
    : el("p", { class: "note", text: "takes no memory of its own: fused, or read in place" }));
  const readers = plan.readersOf(value);
  node.append(el("h4", { text: `read by ${counted(readers.length, "op")}` }), el("ul", { class: "list" }, readers.slice(0, 60).map(([op, slot]) => {
    const wants = plan.operandsOf(op)[slot].wants;
    return el("li", {}, opLink(plan, op), el("div", {}, typeNode(plan, value, wants >= 0 ? wants : form)), el("div", { class: "dim", text: plan.text(plan.ops.source[op]) }));
  })));
  if (readers.length > 60) node.append(el("p", { class: "note", text: `and ${readers.length - 60} more` }));
  const moves = plan.movesOf(value);
  if (moves.length) node.append(el("h4", { text: "transfers of it" }), moveList(plan, moves));
  node.append(...alternativesOf(plan, plan.valueName(value)));
  return node;
}

function whoStated(plan, member) {
  const stated = plan.statedOf(member);
  return [
    el("h4", { text: "who stated it" }),
    stated.length ? el("ul", { class: "list" }, stated.map((text) => el("li", { class: "code", text }))) : el("p", { class: "note", text: "no statement says so: it was decided by cost" }),
  ];
}

/** What another sharding costs, in words. */
function costOf(other) {
  if (Math.abs(other.extra_s) <= other.rounding_s) return "costs the same";
  return other.extra_s > 0 ? `costs at most ${secondsText(other.extra_s)} more` : `costs at least ${secondsText(-other.extra_s)} less`;
}

/** Prices of other shardings, where the page was made with them. */
function alternativesOf(plan, name) {
  const known = plan.alternatives?.[name];
  const out = [el("h4", { text: "instead" })];
  if (!known) {
    const command = `autoshard explain ${quoted(plan.name)} ${quoted(name)}`;
    out.push(el("p", { class: "note", text: "Plans hold no prices of what was not chosen. This works them out:" }), el("p", { class: "code command", text: command }));
  } else if (!known.length) out.push(el("p", { class: "note", text: "the statements and the rules leave no other sharding" }));
  else {
    out.push(el("ul", { class: "list" }, known.map((other) => {
      const cost = costOf(other) + (other.all_at_once ? " all at once, without the stages" : "");
      return el("li", {}, el("span", { class: "code", text: other.sharding }), el("div", { class: "dim", text: `${cost}; peak ${bytesText(other.peak_bytes)}${other.fits ? "" : ", over the memory limit"}` }));
    })));
  }
  return out;
}

function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function outputDetails(plan, slot) {
  const value = plan.outputs.value[slot], layout = plan.outputs.layout[slot], name = plan.text(plan.outputs.name[slot]);
  const node = el("div", {}, el("h3", { text: name }), el("p", {}, typeNode(plan, value, layout)), facts([
    ["sharding", el("span", { class: "code", text: plan.shardingText(layout) })],
    ["on a device", `[${plan.localShape(value, layout).join(", ")}], ${bytesText(plan.localBytes(value, layout))}`],
    ["it is", valueLink(plan, value)],
  ]));
  node.append(...whoStated(plan, -1 - slot), ...alternativesOf(plan, name));
  return node;
}

function moveDetails(plan, k) {
  const { moves, events } = plan, value = moves.value[k];
  const at = plan.once("event of move", () => new Map(Array.from(events.move).map((m, i) => [m, i]))).get(k);
  const hidden = at === undefined ? 0 : events.hidden[at], role = at === undefined ? "" : plan.text(events.role[at]);
  const axes = plan.text(moves.axes[k]);
  return el("div", {}, el("h3", { text: kindText(plan.text(moves.kind[k])) + (axes ? ` over ${axes}` : "") }), facts([
    ["where", plan.text(moves.where[k])],
    ["moves", el("span", {}, valueLink(plan, value), role ? ` (${role})` : "")],
    ["for", moves.op[k] >= 0 ? el("span", {}, opLink(plan, moves.op[k]), ` ${plan.text(plan.ops.source[moves.op[k]])}`) : ""],
    ["bytes", `${bytesText(moves.bytes[k])} on the gathered side of a device`],
    ["each", secondsText(moves.seconds[k])],
    ["executions", countText(moves.times[k])],
    ["a step", `${secondsText(moves.seconds[k] * moves.times[k])}, ${percentText(hidden, 0)} hidden in the estimate`],
  ]));
}
