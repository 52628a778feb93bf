// The page is put together: plans to choose from, panels, keys.

let allPlans = [];
let shown = 0;

function shownPlan() {
  return allPlans[shown];
}

const PANELS = [
  ["verdict", drawVerdict], ["steptime", drawStepTime], ["roofline", drawRoofline], ["timeline", drawTimeline],
  ["memory", drawMemory], ["program", drawProgram], ["parameters", drawParameters], ["gap", drawSearch],
];

/** A panel that fails says so; the others are drawn all the same. */
function drawPanels() {
  const plan = shownPlan();
  document.title = `${plan.verdict.program} · autoshard`;
  document.getElementById("title").textContent = plan.verdict.program;
  document.getElementById("subtitle").textContent = `${plan.verdict.title || plan.verdict.hardware} · ${meshText(plan)} · ${counted(plan.count, "op")}`;
  closeInspector();
  for (const [id, draw] of PANELS) {
    const began = performance.now();
    try {
      draw(plan);
      performance.measure(id, { start: began });
    } catch (error) {
      console.error(error);
      section(id).append(el("p", { class: "note bad", text: `This panel cannot be drawn: ${error}` }));
    }
  }
}

function drawTabs() {
  const tabs = document.getElementById("plans");
  tabs.hidden = allPlans.length < 2;
  tabs.replaceChildren(switcher("Plan", allPlans.map((plan, k) => [k, `${plan.letter} · ${plan.name}`]), shown, (k) => {
    shown = k;
    drawPanels();
    announce(`Plan ${shownPlan().letter} is shown`);
  }));
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, textarea")) return;
  const help = document.getElementById("help");
  if (event.key === "/") {
    programPanel?.input.scrollIntoView({ block: "center" });
    programPanel?.input.focus({ preventScroll: true });
  } else if (event.key === "t") nextTheme();
  else if (event.key === "?") help.open ? help.close() : help.showModal();
  else if (event.key === "Escape" && !help.open) closeInspector();
  else return;
  event.preventDefault();
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length], redrawAll);
}

async function main() {
  setTheme(keptTheme(), () => {});
  if (typeof DecompressionStream === "undefined") throw new Error("this browser has no DecompressionStream; any of 2023 or later has");
  const data = await unpack();
  performance.measure("unpack");
  allPlans = data.plans.map((plan, k) => new Plan(plan, k));
  drawTabs();
  drawPanels();
  drawCompare(allPlans);
  document.getElementById("theme").addEventListener("click", nextTheme);
  document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());
  const pane = document.getElementById("inspector");
  pane.querySelector(".close").addEventListener("click", closeInspector);
  pane.querySelector(".back").addEventListener("click", () => trail.length && inspect(trail.pop(), false));
  addEventListener("keydown", keys);
  const header = document.querySelector("header.top");
  new ResizeObserver(() => {
    const height = getComputedStyle(header).position === "sticky" ? header.offsetHeight : 0;
    document.documentElement.style.setProperty("--header", `${height}px`);
  }).observe(header);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    resolved.clear();
    redrawAll();
  });
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }));
}

main().catch((error) => {
  console.error(error);
  document.getElementById("subtitle").textContent = `This page cannot be shown: ${error.message}`;
});
