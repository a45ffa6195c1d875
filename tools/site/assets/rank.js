"use strict";
// What the search finds. It knows no page: a test runs it outside of a browser.

// synonyms are what our pages say for what a reader types. Two words are looked for as this says, and not each by itself.
const synonyms = {
  "acl": ["rights", "redis rights"], "alternatives": ["comparison"], "benchmark": ["how fast", "comparison"], "capacity": ["sizing"],
  "clock skew": ["clock", "fault by fault"], "compare": ["comparison"], "compatibility": ["upgrade"], "container": ["kubernetes", "docker"],
  "cost": ["what it costs"], "crash": ["killed"], "deadlock": ["two keys"], "deploy": ["production", "kubernetes"],
  "election": ["leader"], "expiry": ["ttl"], "faq": ["questions"], "force unlock": ["break"],
  "garbage collection": ["gc", "garbage", "fault by fault"], "gc": ["garbage", "fault by fault"], "getting started": ["quick start"],
  "helm": ["kubernetes"], "install": ["quick start"], "k8s": ["kubernetes"], "lease": ["our words"], "licence": ["license", "mit"],
  "license": ["mit"], "limitations": ["not promised"], "mock": ["testing"], "monitoring": ["metrics"], "multiple keys": ["two keys"],
  "mutex": ["words from elsewhere"], "mysql": ["databases"], "observability": ["metrics", "spans"], "partition": ["fault by fault"],
  "performance": ["how fast"], "permissions": ["rights"], "permit": ["n at a time"], "postgres": ["databases"], "postgresql": ["databases"],
  "price": ["costs"], "prometheus": ["metrics"], "redsync": ["migrating"], "read lock": ["shared", "which call"], "retry": ["wait"], "rolling restart": ["upgrade"],
  "rolling update": ["upgrade"], "rolling upgrade": ["upgrade"], "rwmutex": ["shared", "which call"], "scaling": ["sizing"],
  "scheduler": ["cron"], "semaphore": ["permits", "n at a time"], "shared": ["which call"], "singleton": ["leader"], "speed": ["how fast"],
  "split brain": ["two holders", "fault by fault"], "sqlite": ["databases"], "ssl": ["tls"], "throttle": ["rate limit"],
  "throughput": ["how fast"], "time out": ["timeout", "words from elsewhere"], "tracing": ["spans"], "try lock": ["nowait", "which call"], "timeout": ["words from elsewhere"], "ttl": ["wllock_lease_ttl", "our words"],
  "unit test": ["testing"], "unlock": ["release"], "valkey": ["redis"], "version": ["tested versions"], "vulnerability": ["security"],
};

// lower returns the words of a text. The scripts are plain enough for \w and a few letters more.
const lower = (text) => text.toLowerCase().match(/[a-z0-9_\u00df-\u024f]+/g) || [];

// words is what is compared, with spaces around each word: names such as WithMaxTenure as a whole and by their parts.
const words = (text) => [...lower(text), ...lower(text.replace(/([a-z0-9])([A-Z])/g, "$1 $2"))].map((word) => ` ${word} `).join("");

// terms returns the parts of a query, each with what is looked for: lists of words.
function terms(query) {
  const all = [], wanted = lower(query);
  while (wanted.length > 0) {
    const two = wanted.slice(0, 2).join(" ");
    if (wanted.length > 1 && Object.hasOwn(synonyms, two)) {
      wanted.splice(0, 2);
      all.push(synonyms[two]);
    } else {
      const word = wanted.shift(), one = word.replace(/(..)s$/, "$1");
      all.push([...new Set([word, one]), ...word.startsWith("err") ? ["errors"] : [], ...[word, one].flatMap((w) => Object.hasOwn(synonyms, w) ? synonyms[w] : [])]);
    }
  }
  return all.map((term) => term.map((text) => text.split(" ")));
}

// rank returns the sections that have all terms of the query, best first: what is in headings and titles before what is in texts.
// The further sections of a page give way to other pages, and so do pages that are not written for users. A word may be a beginning.
function rank(index, query) {
  const wanted = terms(query), found = [], pages = new Map();
  for (const section of wanted.length > 0 ? index : []) {
    section.words ||= [words(section.h), words(section.p), words(section.t)];
    const points = wanted.map((term) => term.reduce((sum, other) => sum + weigh(section.words, other), 0));
    if (Math.min(...points) > 0) found.push({ section, score: points.reduce((a, b) => a + b) * (section.w || 1) });
  }
  const byScore = (a, b) => b.score - a.score;
  for (const f of found.sort(byScore)) {
    const before = pages.get(f.section.p) || 0;
    pages.set(f.section.p, before + 1);
    f.score *= 0.6 ** before;
  }
  return found.sort(byScore).slice(0, 12).map((f) => f.section);
}

// weigh returns the points that a section has for words, those of the word that is worth least in it: a title has more than a text.
const weigh = (places, wanted) => Math.min(...wanted.map((word) => places.reduce((sum, place, i) => sum + [10, 6, 1][i] * count(place, word), 0)));

// count returns how often a word is there, as it matters: ten times are hardly more than five. A beginning is half a word.
function count(place, word) {
  const times = place.split(` ${word} `).length - 1;
  return times > 0 ? 1 + Math.log2(times + 1) : place.includes(` ${word}`) ? 1 : 0;
}
