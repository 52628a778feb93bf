// Amounts for people, in the words of the command line.

function scaled(amount, steps, last, count = 3) {
  for (const [scale, unit] of steps) if (Math.abs(amount) >= scale) return `${digits(amount / scale, count)} ${unit}`;
  return last(amount);
}

const GROUPED = new Intl.NumberFormat("en-US");

/** Three significant digits without an exponent where that is short. */
function digits(number, count = 3) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  if (size >= 1000 && size < 1e6) return GROUPED.format(Math.round(number));
  return size >= 1e6 || size < 1e-3 ? number.toExponential(count - 1) : String(Number(number.toPrecision(count)));
}

function secondsText(seconds, count = 3) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds === 0) return "0 s";
  const steps = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
  return scaled(seconds, steps, (s) => `${digits(s / 1e-9, count)} ns`, count);
}

function bytesText(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const steps = [4, 3, 2, 1].map((power) => [1024 ** power, ["KiB", "MiB", "GiB", "TiB"][power - 1]]);
  return scaled(bytes, steps, (b) => `${Math.round(b)} B`, 4);
}

function flopText(flop) {
  const steps = [[1e18, "EFLOP"], [1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"]];
  return scaled(flop, steps, (f) => `${digits(f)} FLOP`);
}

function percentText(share, places = 1) {
  if (share > 0 && share < 0.0005) return "< 0.05%";
  return `${(100 * share).toFixed(places)}%`;
}

/** A gap as the command line says it; what two digits cannot show is not told to be none. */
function gapText(gap) {
  if (gap <= 0) return "0";
  return gap < 1e-4 ? "< 0.01%" : `${(100 * gap).toFixed(2)}%`;
}

function countText(count) {
  return Number.isInteger(count) ? GROUPED.format(count) : digits(count);
}

function manyText(count) {
  return count >= 1e6 ? `${digits(count / 1e6)} million` : digits(count);
}

/** `n thing` or `n things`. */
function counted(count, thing) {
  return `${countText(count)} ${thing}${count === 1 ? "" : "s"}`;
}

function kindText(kind) {
  return kind.replaceAll("_", "-");
}
