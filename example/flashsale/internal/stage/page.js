"use strict";

// The server sends the whole state with every event; this script draws it. Text goes in as text, never as HTML.

const $ = (id) => document.getElementById(id);

const about = {
  "no lock": "Everybody sells at once.",
  "one tier": "Every buyer asks the lock service.",
  "wllock": "One buyer per shop asks for all.",
  "batches": "One transaction sells to all that wait.",
};

// fill gives an element its attributes, of which false is none, and its children, of which a string is text.
function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children);
  return e;
}

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const whole = (n) => Math.round(n).toLocaleString("en");
const wait = (ms) => (ms >= 1000 ? (ms / 1000).toFixed(1) + " s" : ms.toFixed(ms < 10 ? 1 : 0) + " ms");

// ask presses a button of the server. What it refuses is said in the status line.
async function ask(path, fields = {}) {
  try {
    const answer = await fetch("/face/" + path, { method: "POST", body: new URLSearchParams(fields) });
    if (!answer.ok) say((await answer.text()).trim());
  } catch {
    say("The server does not answer.");
  }
}

// The status line is read out, so it changes only when there is something to say. The clock beside it is not.
let usual = "Connecting ...";
let saying = ""; // instead of the usual, for a while
let silence = 0; // the timer that ends it
function say(text) {
  clearTimeout(silence);
  silence = setTimeout(say, 4000, "");
  saying = text;
  showStatus();
}

function showStatus() {
  const text = saying || usual;
  if ($("status").textContent !== text) $("status").textContent = text;
}

function showProcesses(state) {
  const rows = [];
  const row = (name, pid, up, path, mayKill, mayRestart) => {
    const button = up || !mayRestart
      ? make("button", { type: "button", class: "kill", "data-ask": path + "/kill", "aria-label": "Kill " + name, disabled: !mayKill }, "Kill")
      : make("button", { type: "button", class: "restart", "data-ask": path + "/restart", "aria-label": "Restart " + name }, "Restart");
    rows.push(make("li", {},
      make("span", { class: "name" }, name, " ", make("small", {}, pid ? "process " + pid : "")),
      make("span", { class: up ? "state" : "state down" }, up ? "up" : pid ? "starting" : "down"),
      button));
  };
  const s = state.service;
  if (s.name) row(s.name === "Redis" ? "lock service (Redis)" : s.name, s.pid, s.up, "service", s.ours && s.up, s.ours && !s.pid);
  for (const shop of state.shops || []) row("shop " + shop.n, shop.pid, shop.pid > 0, "shops/" + shop.n, true, true);
  redraw($("processes"), rows);
}

// redraw replaces children only if they differ, so that a button is not replaced under a finger, and keeps the focus.
function redraw(parent, children) {
  const next = make("div", {}, ...children);
  if (parent.innerHTML === next.innerHTML) return;
  const focused = document.activeElement && parent.contains(document.activeElement) && document.activeElement.dataset.ask;
  parent.replaceChildren(...next.childNodes);
  if (focused) parent.querySelector(`[data-ask^="${focused.replace(/\w+$/, "")}"]`)?.focus();
}

// bar is a line of parts, of each its attributes and how much of the total it is.
function bar(total, parts) {
  let from = 0;
  return draw("svg", { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts.map(([attributes, n]) => {
    const part = draw("rect", { ...attributes, x: from, y: 0, height: 1, width: 100 * n / total });
    from += 100 * n / total;
    return part;
  }));
}

function card(r, i, sale) {
  const badge = r.oversold > 0
    ? make("span", { class: "badge bad", "data-is": "verdict" }, whole(r.oversold) + " oversold")
    : sale.running ? ""
    : r.twice > 0 ? make("span", { class: "badge bad", "data-is": "verdict" }, whole(r.twice) + " sold twice")
    : make("span", { class: "badge good", "data-is": "verdict" }, "nothing oversold");
  const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", { "data-is": name }, value));
  const fates = [
    ["bought", r.sold - r.oversold, "bought"],
    ["sold out", r.sold_out, "told: sold out"],
    ["turned away", r.refused + r.away, "told: come back later"],
    ["no answer", r.failed, "no answer"],
    ["oversold", r.oversold, "bought in vain"],
  ].filter(([name, n]) => n > 0 || name !== "oversold");
  const seen = Math.max(1, fates.reduce((sum, [, n]) => sum + n, r.inside)); // those inside are the empty rest of the bar
  const most = Math.max(sale.stock, r.sold);
  const within = Math.min(r.sold, sale.stock);
  return make("section", { class: "round hue" + i, "aria-label": r.round },
    make("h2", {}, r.round, badge),
    make("p", { class: "about" }, about[r.round] || ""),
    make("p", { class: "sold" }, whole(r.sold), make("small", {}, " sold of " + whole(sale.stock))),
    bar(most, [[{ fill: "var(--hue)" }, within], [{ fill: "var(--over)" }, r.sold - within]]),
    make("h3", {}, "What buyers saw"),
    bar(seen, fates.map(([, n], k) => [{ class: "fate" + k }, n])),
    make("ul", { class: "fates" }, ...fates.map(([name, n, text], k) => make("li", k > 2 && n > 0 ? { class: "alarm" } : {},
      make("i", { class: "fate" + k }), make("b", { "data-is": name }, whole(n)), " ", text,
      name === "turned away" && n > 0 ? make("small", { "data-is": "told" }, `(99 of 100 within ${wait(r.p99_told_ms)})`) : ""))),
    make("dl", {},
      fact("stock left", whole(r.left)),
      fact("inside now", whole(r.inside)),
      fact("wait p50", r.locked ? wait(r.p50_wait_ms) : "-"),
      fact("wait p99", r.locked ? wait(r.p99_wait_ms) : "-"),
      fact("requests", r.locked ? whole(r.backend_requests) : "-"),
      fact("pieces/s", whole(r.orders_per_second))));
}

function showSale(state) {
  const sale = state.sale;
  const empty = { stock: Number(document.forms.start.elements.stock.value), running: true, samples: [], outages: [], seconds: 1, elapsed: 0 };
  const shown = sale || empty;
  const rounds = sale ? sale.rounds : Object.keys(about).map((round) => ({
    round, locked: round !== "no lock", sold: 0, left: shown.stock, oversold: 0, twice: 0, sold_out: 0, refused: 0, away: 0, failed: 0, inside: 0,
    backend_requests: 0, orders_per_second: 0, p50_wait_ms: 0, p99_wait_ms: 0, p99_told_ms: 0,
  }));
  $("rounds").replaceChildren(...rounds.map((r, i) => card(r, i, shown)));
  $("verdict").hidden = !(sale && sale.verdict);
  $("verdict").textContent = (sale && sale.verdict) || "";
  showChart(shown, rounds);
  const running = Boolean(sale && sale.running);
  $("go").hidden = running;
  $("end").hidden = !$("go").hidden;
  $("end").disabled = Boolean(sale && sale.closed);
  $("go").disabled = Boolean(state.problem) || !state.service.name;
  document.body.dataset.running = running;
  $("clock").textContent = sale ? sale.elapsed.toFixed(1) + " s" : "";
  if (!sale) usual = state.service.name ? "Ready: start a sale." : "Starting ...";
  else usual = `Sale ${sale.number} ${sale.running ? "goes on" : "has ended"}.`;
  showStatus();
}

const frame = { left: 82, right: 570, top: 10, bottom: 234 };

function showChart(sale, rounds) {
  const time = Math.max(sale.seconds, sale.elapsed, 1);
  const most = Math.max(sale.stock, ...rounds.map((r) => r.sold)) * 1.05;
  const x = (t) => frame.left + (frame.right - frame.left) * t / time;
  const y = (n) => frame.bottom - (frame.bottom - frame.top) * n / most;
  const parts = (sale.outages || []).map(([from, to]) =>
    draw("rect", { class: "away", x: x(from), y: frame.top, width: Math.max(x(to || sale.elapsed) - x(from), 1), height: frame.bottom - frame.top }));
  parts.push(
    draw("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
    draw("line", { class: "axis", x1: frame.left, x2: frame.left, y1: frame.top, y2: frame.bottom }),
    draw("line", { class: "stock", x1: frame.left, x2: frame.right, y1: y(sale.stock), y2: y(sale.stock) }),
    draw("text", { x: frame.left - 6, y: y(sale.stock) + 4, "text-anchor": "end" }, whole(sale.stock)),
    draw("text", { x: frame.left - 6, y: frame.bottom + 4, "text-anchor": "end" }, "0"));
  const step = [1, 2, 5, 10, 20].find((s) => time / s <= 8) || 60;
  for (let t = step; t <= time; t += step) {
    parts.push(draw("text", { x: x(t), y: frame.bottom + 21, "text-anchor": "middle" }, t + " s"));
  }
  rounds.forEach((r, i) => {
    const points = [[0, 0], ...(sale.samples || []).map((s) => [s[0], s[i + 1]])].map(([t, n]) => x(t).toFixed(1) + "," + y(n).toFixed(1));
    parts.push(draw("polyline", { class: "hue" + i, points: points.join(" ") }));
  });
  $("chart").replaceChildren(...parts);
  $("chart").setAttribute("aria-label", "Pieces sold over time: " + rounds.map((r) => `${r.round} ${r.sold} of ${sale.stock}`).join(", "));
}

function showLog(events) {
  const log = $("log");
  const lines = events.map((e) => e.at + e.text);
  const same = lines.slice(0, log.childElementCount).every((text, i) => log.children[i].textContent === text);
  if (!same || lines.length < log.childElementCount) log.replaceChildren();
  for (const e of events.slice(log.childElementCount)) {
    log.append(make("li", {}, make("time", {}, e.at), make("span", {}, e.text)));
    log.scrollTop = log.scrollHeight;
  }
}

let sliding = false;

function show(state) {
  $("problem").hidden = !state.problem;
  $("problem").textContent = state.problem;
  for (const rtt of document.querySelectorAll(".rtt")) rtt.textContent = state.rtt;
  if (!sliding) {
    $("threshold").value = state.threshold;
    $("threshold-value").textContent = state.threshold;
  }
  showProcesses(state);
  showSale(state);
  showLog(state.events || []);
}

document.forms.start.addEventListener("submit", (e) => {
  e.preventDefault();
  say("");
  ask("sale", Object.fromEntries(new FormData(e.target)));
});
$("end").addEventListener("click", () => ask("sale/end"));
$("processes").addEventListener("click", (e) => {
  const button = e.target.closest("[data-ask]");
  if (button) ask(button.dataset.ask);
});
$("threshold").addEventListener("input", (e) => {
  sliding = true;
  $("threshold-value").textContent = e.target.value;
});
$("threshold").addEventListener("change", async (e) => {
  await ask("threshold", { value: e.target.value });
  sliding = false;
});
$("legend").append(
  ...Object.keys(about).map((title, i) => make("li", { class: "hue" + i }, make("i"), title)),
  make("li", {}, "- - the stock"),
  make("li", {}, make("i", { class: "area" }), "no lock service"));

const events = new EventSource("/face/events");
events.onopen = () => ask("open");
events.onmessage = (e) => {
  document.body.dataset.live = "true";
  show(JSON.parse(e.data));
};
events.onerror = () => say("The server does not answer: trying again ...");
