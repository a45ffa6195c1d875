"use strict";
// What the search finds. It knows no page: a test runs it outside of a browser.

// lower returns the words of a text. The scripts are plain enough for \w and a few letters more.
const lower = (text) => text.toLowerCase().match(/[a-z0-9_\u00df-\u024f]+/g) || [];

// words are what is compared: names such as WithMaxTenure as a whole and by their parts.
const words = (text) => new Set(lower(text).concat(lower(text.replace(/([a-z0-9])([A-Z])/g, "$1 $2"))));

// rank returns the sections that have all words of the query, best first. The last word may be a beginning.
function rank(index, query) {
  const wanted = lower(query);
  if (wanted.length === 0) return [];
  const found = [];
  for (const section of index) {
    section.words = section.words || { h: words(section.h), p: words(section.p), t: words(section.t) };
    let score = 0;
    const all = wanted.every((word) => {
      const points = weigh(section.words.h, word, 10) + weigh(section.words.p, word, 6) + weigh(section.words.t, word, 1);
      score += points;
      return points > 0;
    });
    if (all) found.push({ section, score });
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 12).map((f) => f.section);
}

function weigh(set, word, weight) {
  if (set.has(word)) return 2 * weight;
  for (const other of set) if (other.startsWith(word)) return weight;
  return 0;
}

