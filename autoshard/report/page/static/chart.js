// What drawings share: a canvas as sharp as the screen, ticks, and a tip beside the pointer.

class Chart {
  /** options: label, height, draw(context, width, height), and handlers `hover(x, y)`, `click(x, y)`, `key(event)`. */
  constructor(options) {
    this.options = options;
    this.canvas = el("canvas", { role: "img", tabindex: "0", "aria-label": options.label, style: { height: `${options.height}px` } });
    this.node = el("div", { class: "chart" }, this.canvas);
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.drag) {
        this.drag.moved ||= Math.abs(event.clientX - this.drag.x) > 3;
        options.pan?.(event.clientX - this.drag.last);
        this.drag.last = event.clientX;
      }
      const tip = options.hover?.(...at(event));
      if (tip) showTip(tip, event.clientX, event.clientY);
      else hideTip();
    });
    this.canvas.addEventListener("pointerleave", hideTip);
    this.canvas.addEventListener("pointerdown", (event) => {
      this.drag = { x: event.clientX, last: event.clientX, moved: false };
    });
    addEventListener("pointerup", () => setTimeout(() => (this.drag = null)));
    this.canvas.addEventListener("click", (event) => this.drag?.moved || options.click?.(...at(event)));
    this.canvas.addEventListener("dblclick", (event) => options.zoom?.(0.4, at(event)[0]));
    this.canvas.addEventListener("wheel", (event) => {
      if (!options.zoom || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
      event.preventDefault();
      options.zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, at(event)[0]);
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.metaKey && options.key?.(event)) event.preventDefault();
    });
    new ResizeObserver(() => this.redraw()).observe(this.node);
    Chart.all.add(this);
  }

  redraw() {
    if (!this.node.isConnected) return; // it will be drawn when its size is known
    const width = this.node.clientWidth, height = this.options.height;
    if (!width) return;
    const sharp = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * sharp);
    this.canvas.height = Math.round(height * sharp);
    const context = this.canvas.getContext("2d");
    context.scale(sharp, sharp);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.options.draw(context, width, height);
  }
}
Chart.all = new Set();

function redrawAll() {
  for (const chart of Chart.all) {
    if (chart.node.isConnected) chart.redraw();
    else if (chart.shown) Chart.all.delete(chart);
    chart.shown ||= chart.node.isConnected;
  }
}

/** Round places for ticks, about `count` of them. */
function ticks(from, to, count) {
  const rough = (to - from) / Math.max(1, count);
  if (!(rough > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10);
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

/** The same in powers of two, for bytes. */
function byteTicks(to, count) {
  let step = 2 ** Math.ceil(Math.log2(Math.max(1, to / count)));
  const found = [];
  for (let at = 0; at <= to; at += step) found.push(at);
  return found;
}

function showTip(lines, x, y) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...lines.map((line, k) => el("div", { class: k ? "" : "first", text: line })));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

/** Text that ends with an ellipsis where it is wider than there is room. */
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let length = Math.floor((text.length * room) / Math.max(1, context.measureText(text).width));
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length--;
  return length > 1 ? `${text.slice(0, length)}…` : "";
}
