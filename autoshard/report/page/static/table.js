// Long lists: only the rows that are seen exist. A scroller has the rows and the keys, a table has columns and sorts.

const ROW_HEIGHT = 26;
const OVERSCAN = 8;

class Scroller {
  /**
   * options: label; role (grid, treegrid); columns (of a CSS grid); draw(index, row element) fills a row; pick(index) is
   * called with Enter or a click; key(event, index) may take a key before the scroller does and returns true then.
   */
  constructor(options) {
    this.options = options;
    this.count = 0;
    this.current = -1;
    this.drawn = new Map();
    this.id = `rows-${(Scroller.made = (Scroller.made ?? 0) + 1)}`;
    this.space = el("div", { class: "space", role: "rowgroup" });
    this.node = el("div", {
      class: "scroller", role: options.role ?? "grid", tabindex: "0", "aria-label": options.label,
      style: { "--columns": options.columns, "--row": `${ROW_HEIGHT}px`, "--least": `${leastWidth(options.columns)}rem` },
      on: {
        scroll: () => this.later(),
        keydown: (event) => this.keyed(event),
        // a pointer chooses its row itself
        focus: () => this.current < 0 && this.node.matches(":focus-visible") && this.move(0),
      },
    });
    if (options.head) this.node.append(options.head);
    this.node.append(this.space);
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row) return;
      this.move(Number(row.dataset.index), false);
      options.pick?.(this.current, event);
    });
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /** There are other rows now, or other things in them. */
  setCount(count) {
    this.count = count;
    this.current = Math.min(this.current, count - 1);
    this.node.setAttribute("aria-rowcount", String(count));
    this.space.style.height = `${count * ROW_HEIGHT}px`;
    this.space.replaceChildren();
    this.drawn.clear();
    this.draw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  /** Rows that come into sight are made, those out of sight go, the others stay as they are. */
  draw() {
    const height = this.node.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(this.count, Math.ceil((this.node.scrollTop + height) / ROW_HEIGHT) + OVERSCAN);
    for (const [index, row] of this.drawn) {
      if (index >= first && index < last) continue;
      row.remove();
      this.drawn.delete(index);
    }
    const made = [];
    for (let index = first; index < last; index++) {
      if (this.drawn.has(index)) continue;
      const row = el("div", {
        class: "row", role: "row", id: `${this.id}-${index}`, "data-index": index, "aria-rowindex": index + 1,
        "aria-selected": "false", style: { top: `${index * ROW_HEIGHT}px` },
      });
      this.options.draw(index, row);
      this.drawn.set(index, row);
      made.push(row);
      if (index === this.current) this.mark(index, true);
    }
    this.space.append(...made);
  }

  mark(index, current) {
    const row = this.drawn.get(index);
    row?.classList.toggle("current", current);
    row?.setAttribute("aria-selected", String(current));
  }

  /** Make a row the current one and show it. */
  move(index, show = true) {
    if (!this.count) return;
    this.mark(this.current, false);
    this.current = Math.max(0, Math.min(this.count - 1, index));
    this.node.setAttribute("aria-activedescendant", `${this.id}-${this.current}`);
    if (show) this.show(this.current);
    this.draw();
    this.mark(this.current, true);
  }

  show(index) {
    const head = this.options.head?.offsetHeight ?? 0;
    const top = index * ROW_HEIGHT, height = this.node.clientHeight - head;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + ROW_HEIGHT > this.node.scrollTop + height) this.node.scrollTop = top + ROW_HEIGHT - height;
  }

  keyed(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.options.key?.(event, this.current)) {
      event.preventDefault();
      return;
    }
    const page = Math.max(1, Math.floor(this.node.clientHeight / ROW_HEIGHT) - 2);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count }[event.key];
    if (step !== undefined) this.move(this.current + step);
    else if ((event.key === "Enter" || event.key === " ") && this.current >= 0) this.options.pick?.(this.current, event);
    else return;
    event.preventDefault();
  }
}

/** The rem that columns need at least: each names one number of them. */
function leastWidth(columns) {
  return columns.match(/[\d.]+(?=rem)/g).reduce((sum, text) => sum + Number(text), 0);
}

class Table {
  /**
   * rows: what is shown, in their first order. columns: {title, width, value(row) to sort by, cell(row) text or node,
   * right, up: sorted upwards first}. pick(row).
   */
  constructor({ label, columns, rows, pick, sortedBy = -1 }) {
    this.columns = columns;
    this.rows = rows.slice();
    this.sorted = { column: -1, down: false };
    this.head = el("div", { class: "head", role: "row" });
    this.buttons = columns.map((column, k) => {
      const button = el("button", { type: "button", text: column.title, on: { click: () => this.sort(k) } });
      this.head.append(el("div", { role: "columnheader", class: column.right ? "cell right" : "cell" }, button));
      return button;
    });
    this.scroller = new Scroller({
      label, head: this.head, columns: columns.map((c) => c.width).join(" "),
      draw: (index, row) => this.fill(this.rows[index], row),
      pick: pick && ((index) => pick(this.rows[index])),
    });
    this.node = this.scroller.node;
    if (sortedBy >= 0) this.sort(sortedBy);
    else this.scroller.setCount(this.rows.length);
  }

  fill(it, row) {
    for (const column of this.columns) {
      const cell = el("div", { role: "gridcell", class: column.right ? "cell right" : "cell" }, column.cell(it));
      if (!cell.firstElementChild) cell.title = cell.textContent;
      row.append(cell);
    }
  }

  setRows(rows) {
    this.rows = rows.slice();
    if (this.sorted.column >= 0) this.order();
    this.scroller.setCount(this.rows.length);
  }

  sort(k) {
    const { column, down } = this.sorted;
    this.sorted = { column: k, down: column === k ? !down : !this.columns[k].up };
    this.order();
    [...this.head.children].forEach((cell, j) => {
      if (j === k) cell.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    this.scroller.setCount(this.rows.length);
  }

  order() {
    const { column, down } = this.sorted;
    const value = this.columns[column].value ?? this.columns[column].cell;
    const sign = down ? -1 : 1;
    const keys = new Map(this.rows.map((row) => [row, value(row)]));
    this.rows.sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return sign * order;
    });
  }
}
