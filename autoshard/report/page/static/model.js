// The data of the page, and what can be asked of one plan.

async function unpack() {
  const packed = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Plan {
  constructor(data, index) {
    Object.assign(this, data);
    this.index = index;
    this.letter = String.fromCharCode(65 + index);
    this.axes = data.verdict.mesh.map(([name, size]) => ({ name, size }));
    this.count = data.ops.kind.length;
    this.kept = new Map();
  }

  /** Worked out when it is asked for first. */
  once(key, make) {
    if (!this.kept.has(key)) this.kept.set(key, make());
    return this.kept.get(key);
  }

  text(number) {
    return this.texts[number];
  }

  // -- ops -------------------------------------------------------------------------------------------

  opName(op) {
    return `${this.text(this.ops.kind[op])}:${this.ops.id[op]}`;
  }

  operandsOf(op) {
    const { operands, operands_at: at, wants } = this.ops;
    const out = [];
    for (let k = at[op]; k < at[op + 1]; k++) out.push({ value: operands[k], wants: wants[k] });
    return out;
  }

  resultsOf(op) {
    return this.ops.results.slice(this.ops.results_at[op], this.ops.results_at[op + 1]);
  }

  /** Per op: seconds of the collectives around it, of all (`wire`) and of those not hidden (`waited`), and copies. */
  get around() {
    return this.once("around", () => {
      const wire = new Float64Array(this.count), waited = new Float64Array(this.count), copies = new Float64Array(this.count);
      const { op, move, seconds, hidden } = this.events;
      for (let k = 0; k < op.length; k++) {
        if (move[k] < 0 || op[k] < 0) continue;
        if (this.moves.wire[move[k]]) {
          wire[op[k]] += seconds[k];
          waited[op[k]] += seconds[k] * (1 - hidden[k]);
        } else copies[op[k]] += seconds[k];
      }
      return { wire, waited, copies };
    });
  }

  // -- values ----------------------------------------------------------------------------------------

  valueName(value) {
    return this.text(this.values.name[value]);
  }

  typeOf(value) {
    const text = this.text(this.values.type[value]);
    const open = text.indexOf("[");
    const inside = text.slice(open + 1, -1);
    return { dtype: text.slice(0, open), shape: inside ? inside.split(",").map(Number) : [] };
  }

  /** The form that uses see: inputs as they are stored, others as their uses share them. */
  formOf(value) {
    const { form, made, origin } = this.values;
    const stored = ["input", "const"].includes(this.text(origin[value]));
    return form[value] >= 0 && !stored ? form[value] : made[value];
  }

  shardingText(layout) {
    return layout < 0 ? "whole on every device" : this.layouts[layout].text;
  }

  localShape(value, layout) {
    const { shape } = this.typeOf(value);
    return layout < 0 ? shape : shape.map((n, k) => Math.ceil(n / this.layouts[layout].dims[k][0]));
  }

  localBytes(value, layout) {
    const elements = this.localShape(value, layout).reduce((a, b) => a * b, 1);
    return Math.ceil(elements * this.values.item_bytes[value]);
  }

  /** Of each value the uses of it: [op, slot]. */
  readersOf(value) {
    const index = this.once("readers", () => {
      const found = new Map();
      for (let op = 0; op < this.count; op++) {
        for (let k = this.ops.operands_at[op]; k < this.ops.operands_at[op + 1]; k++) {
          const of = this.ops.operands[k];
          if (!found.has(of)) found.set(of, []);
          found.get(of).push([op, k - this.ops.operands_at[op]]);
        }
      }
      return found;
    });
    return index.get(value) ?? [];
  }

  grouped(key, column) {
    return this.once(key, () => {
      const found = new Map();
      column.forEach((item, k) => (found.has(item) ? found.get(item).push(k) : found.set(item, [k])));
      return found;
    });
  }

  movesOf(value) {
    return this.grouped("moves of values", this.moves.value).get(value) ?? [];
  }

  statedOf(member) {
    const found = this.grouped("stated of members", this.stated.member).get(member) ?? [];
    return found.map((k) => this.text(this.stated.text[k]));
  }

  heldOf(value) {
    return this.grouped("held of values", this.memory.value).get(value) ?? [];
  }

  /** Input number -> value, by name. */
  get inputNames() {
    return this.once("input names", () => new Map(this.inputs.value.map((v) => [this.valueName(v), v])));
  }

  /** The cheapest named strategy that has a plan, or null. */
  get bestBaseline() {
    const priced = this.verdict.baselines.filter((b) => b.objective_s !== null);
    return priced.length ? priced.reduce((a, b) => (b.objective_s < a.objective_s ? b : a)) : null;
  }
}

/** When every event begins and ends: see `view/timeline.py`, which has the same arithmetic. */
function onTheClock(plan, overlapped) {
  return plan.once(`clock ${overlapped}`, () => {
    const { op, seconds, hidden, role } = plan.events;
    const count = op.length;
    const start = new Float64Array(count), stop = new Float64Array(count);
    const from = new Float64Array(count), to = new Float64Array(count);
    let now = 0;
    for (let k = 0; k < count; k++) {
      const behind = overlapped ? seconds[k] * hidden[k] : 0;
      start[k] = now;
      stop[k] = now + seconds[k] - behind;
      const early = plan.text(role[k]) === "weights";
      from[k] = early ? Math.max(0, now - behind) : stop[k];
      to[k] = early ? now : stop[k] + behind;
      now = stop[k];
    }
    return { start, stop, from, to, total: now };
  });
}
