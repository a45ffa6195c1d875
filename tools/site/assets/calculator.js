"use strict";
// The formulas of docs/tuning.md. tune is pure: a test runs it outside of a browser and compares it with that page.

// round keeps two digits, downwards: a time-out that is a little shorter harms nobody.
function round(ms) {
  if (ms <= 0) return 0;
  const unit = 10 ** (Math.floor(Math.log10(ms)) - 1);
  return Math.floor(ms / unit + 1e-9) * unit;
}

// duration writes milliseconds as Go reads them.
function duration(ms) {
  if (ms <= 0) return "0s";
  const short = (n) => String(Number(n.toFixed(3)));
  return ms >= 1000 ? short(ms / 1000) + "s" : ms >= 1 ? short(ms) + "ms" : short(ms * 1000) + "us";
}

// tune takes milliseconds and a number of servers.
function tune({ hold, slowest, servers, patience, rtt, failover }) {
  const warnings = [];
  slowest = Math.max(slowest, hold);
  const turn = hold * servers;

  const fits = Math.floor((0.7 * patience) / turn);
  const threshold = Math.max(1, fits);
  if (fits < 1) {
    warnings.push(`A single waiter is too many: a turn on each of ${servers} servers takes ${duration(turn)}, the callers wait ${duration(patience)}. Shorten the work, or serve many callers in one with WrapBatch.`);
  }

  let wait = round(patience - slowest - rtt);
  if (wait <= 0) {
    wait = round(patience / 2);
    warnings.push("The slowest hold alone takes as long as the callers wait: whatever the wait is, some get their answer too late.");
  }

  const shortestTTL = Math.max(50, rtt / 0.22);
  let ttl = round(failover);
  if (ttl < shortestTTL) {
    ttl = Math.ceil(shortestTTL / 10) * 10;
    warnings.push(`With a round trip of ${duration(rtt)} a lease needs at least ${duration(ttl)}: a crashed server delays the others for that long.`);
  } else if (ttl < 1000) {
    warnings.push(`A pause of ${duration(ttl / 4)}, of a garbage collector or of the network, can cost the lock. Below a second, be sure that there are none.`);
  }

  const lockTimeMax = Math.max(1000, 10 * slowest);
  const tenure = Math.max(1, servers > 1 ? Math.min(100, round((0.2 * patience) / (servers - 1))) : 100);
  const last = (threshold + 1) * turn + (servers - 1) * tenure;
  const idle = servers > 1 ? rtt / (tenure + rtt) : 0;
  if (idle > 0.05) {
    warnings.push(`The lock is idle for ${(100 * idle).toFixed(0)}% of the time, while it changes servers: a longer patience, fewer servers per key, or a nearer lock service helps.`);
  }

  return {
    settings: [
      ["WLLOCK_SINGLE_WAIT_THRESHOLD", "WithThreshold", String(threshold), `0.7 × patience / (hold × servers): the last in the queue is served in time. ${threshold > 50 ? "More than 50 sells nothing more: choose less when in doubt." : ""}`],
      ["WLLOCK_WAIT", "WithWait", duration(wait), "patience − slowest hold − round trip: the work must fit into the rest"],
      ["WLLOCK_LOCK_TIME_MAX", "WithLockTimeMax", duration(lockTimeMax), "ten times the slowest hold, at least a second: ends what hangs, not what is slow"],
      ["WLLOCK_LEASE_TTL", "WithLeaseTTL", duration(ttl), `the acceptable failover; pauses up to a quarter of it, ${duration(ttl / 4)}, never cost the lock`],
      ["WLLOCK_MAX_TENURE", "WithMaxTenure", duration(tenure), servers > 1 ? "0.2 × patience / (servers − 1), at most 100 ms: how long one server serves its own while others wait" : "the default; one server has nobody to share with"],
      ["WLLOCK_MAX_HANDOFFS", "WithMaxHandoffs", "128", hold < tenure / 128 ? "the default; with so short a hold it ends a tenure before the time does" : "the default; the time ends a tenure first"],
      ["WLLOCK_LINGER", "WithLinger", "200us", "the default; under load there is always a next waiter"],
    ],
    facts: [
      `At most ${Number((1000 / hold).toPrecision(3))} calls per second for one key, on any number of servers.`,
      `The last of ${threshold} waiters is served within ${duration(round(last))}, if all ${servers} servers are busy; the callers wait ${duration(patience)}.`,
      `A caller beyond the threshold is refused at once, without a request to the lock service.`,
      servers > 1
        ? `Servers take turns of ${duration(tenure)}; the lock is idle for ${(100 * idle).toFixed(1)}% of the time in between.`
        : `With one server the lock service is asked once per tenure, and nobody waits for it.`,
      `After a crash the others go on within ${duration(ttl)}.`,
    ],
    warnings,
  };
}

function show(form) {
  const input = {};
  for (const field of form.querySelectorAll("input")) {
    if (!(field.valueAsNumber >= Number(field.min))) return; // while one is being typed
    input[field.name] = field.valueAsNumber;
  }
  const found = tune(input);
  const fill = (id, tag, texts) => document.getElementById(id).replaceChildren(...texts.map((text) => {
    const e = document.createElement(tag);
    e.textContent = text;
    return e;
  }));
  document.getElementById("settings-rows").replaceChildren(...found.settings.map((cells) => {
    const row = document.createElement("tr");
    cells.forEach((text, i) => {
      const code = document.createElement(i < 3 ? "code" : "span");
      code.textContent = text;
      row.insertCell().append(code);
    });
    return row;
  }));
  fill("facts", "li", found.facts);
  fill("warnings", "p", found.warnings);
  document.getElementById("environment").textContent = found.settings.map((s) => `${s[0]}=${s[2]}`).join("\n");
  history.replaceState(null, "", "#" + new URLSearchParams(input));
}

if (typeof document !== "undefined") {
  const form = document.getElementById("calculator");
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
    const field = form.elements.namedItem(name);
    if (field instanceof HTMLInputElement) field.value = value;
  }
  form.addEventListener("input", () => show(form));
  form.addEventListener("submit", (e) => e.preventDefault());
  show(form);
}
