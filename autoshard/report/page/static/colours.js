// Colours by mesh axis and by kind of work: custom properties of the style sheet, resolved for canvases.

const AXIS_COLOURS = 8;
const KINDS = {
  compute: "kind-compute", all_gather: "kind-gather", reduce_scatter: "kind-scatter", all_reduce: "kind-reduce",
  all_to_all: "kind-all-to-all", permute: "kind-permute", shift: "kind-permute",
};

const resolved = new Map();

function colour(name) {
  if (!resolved.has(name)) {
    resolved.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return resolved.get(name);
}

function kindColour(kind) {
  return KINDS[kind] ?? "kind-copy";
}

function axisColour(axis) {
  return axis < 0 ? "muted" : `axis-${axis % AXIS_COLOURS}`;
}

function groupColour(number) {
  return `group-${number % 10}`;
}

/** A type with its dimensions, those that are cut in the colours of the axes that cut them. */
function typeNode(plan, value, layout) {
  const { dtype, shape } = plan.typeOf(value);
  const node = el("span", { class: "type", title: plan.shardingText(layout) }, el("span", { class: "dtype", text: dtype }), "[");
  shape.forEach((n, k) => {
    if (k) node.append(", ");
    const [parts, axes] = layout < 0 ? [1, []] : plan.layouts[layout].dims[k];
    if (!axes.length) node.append(String(n));
    else node.append(el("span", { class: "cut", style: { background: axesBackground(axes) }, text: `${n}/${parts}` }));
  });
  node.append("]");
  if (layout >= 0 && plan.layouts[layout].sum.length) {
    const over = plan.layouts[layout].sum;
    const text = `Σ ${over.map((a) => plan.axes[a].name).join(", ")}`;
    node.append(" ", el("span", { class: "cut sum", style: { background: axesBackground(over) }, text, title: "partial sums" }));
  }
  return node;
}

function axesBackground(axes) {
  if (axes.length === 1) return `var(--${axisColour(axes[0])})`;
  const stops = axes.map((a, k) => `var(--${axisColour(a)}) ${(100 * k) / axes.length}% ${(100 * (k + 1)) / axes.length}%`);
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}

const THEMES = ["auto", "light", "dark"];

/** The theme of the page: the system's unless the reader chose one. */
function setTheme(theme, redraw) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  button.setAttribute("aria-label", `Theme: ${theme}`);
  button.title = `Theme: ${theme} (t)`;
  try {
    localStorage.setItem("autoshard-theme", theme);
  } catch {
    // pages of files may have no storage
  }
  resolved.clear();
  redraw();
}

function keptTheme() {
  try {
    const theme = localStorage.getItem("autoshard-theme");
    return THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}
