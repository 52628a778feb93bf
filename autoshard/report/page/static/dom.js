// Elements are made here and only here. What a plan says becomes text nodes and attributes, never markup.

const SVG_SPACE = "http://www.w3.org/2000/svg";

/** An element. options: `class`, `text`, `style` and `on` are told apart, everything else is an attribute. */
function el(tag, options = {}, ...children) {
  return filled(document.createElement(tag), options, children);
}

function svg(tag, options = {}, ...children) {
  return filled(document.createElementNS(SVG_SPACE, tag), options, children);
}

function filled(node, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "text") node.textContent = value;
    else if (name === "style") for (const [key, it] of Object.entries(value)) node.style.setProperty(key, it);
    else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function section(id) {
  const body = document.querySelector(`#${id} .body`);
  body.replaceChildren();
  return body;
}

/** What is told to people who listen to the page. */
function announce(text) {
  document.getElementById("live").textContent = text;
}

/** A group of buttons of which one is pressed. choices: [value, label]. */
function switcher(label, choices, chosen, onChoose) {
  const group = el("div", { class: "switch", role: "group", "aria-label": label });
  for (const [value, text] of choices) {
    const button = el("button", { type: "button", "aria-pressed": String(value === chosen), text });
    button.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
      onChoose(value);
    });
    group.append(button);
  }
  return group;
}

/** Names and values beside each other. rows: [name, text or node]. */
function facts(rows) {
  const list = el("dl", { class: "facts" });
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", { text: name }), el("dd", {}, value));
  }
  return list;
}

function legend(items) {
  const list = el("ul", { class: "legend" });
  for (const [text, name, pale] of items) {
    const style = { background: `var(--${name})` };
    list.append(el("li", {}, el("span", { class: pale ? "swatch pale" : "swatch", style, "aria-hidden": "true" }), text));
  }
  return list;
}
