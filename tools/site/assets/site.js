"use strict";
// Theme, navigation and search. Everything on the page can be read without this file.

const up = document.body.dataset.up;

// The theme follows the system until somebody chooses another.
document.getElementById("ui-theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.theme = root.dataset.theme } catch {}
});

// Lists of pages and of headings are unfolded where they have a column of their own.
const contents = document.getElementById("ui-contents");
for (const [list, width] of [[document.getElementById("ui-nav"), "60rem"], [contents, "82rem"]]) {
  const roomy = matchMedia(`(min-width: ${width})`);
  const unfold = () => { if (list) list.open = roomy.matches };
  roomy.addEventListener("change", unfold);
  unfold();
}

// reveal scrolls a list, and not the page, to one of its links that is out of sight.
function reveal(list, link) {
  const y = link.offsetTop - list.scrollTop;
  if (y < 0 || y + link.offsetHeight > list.clientHeight) list.scrollTop += y - list.clientHeight / 2;
}
const here = document.querySelector("#ui-nav [aria-current]");
reveal(here.closest("details"), here);

// The contents mark the section that is read: the last whose heading is above a line below the header.
const links = [...contents?.querySelectorAll("a") || []];
const sections = links.map((link) => document.getElementById(decodeURIComponent(link.hash.slice(1))));
let marked;
function mark() {
  const end = scrollY > 0 && innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const now = end ? links.at(-1) : links[sections.findLastIndex((heading) => heading.getBoundingClientRect().top < 100)];
  if (now === marked) return;
  marked?.removeAttribute("aria-current");
  now?.setAttribute("aria-current", "location");
  if (now) reveal(contents, now);
  marked = now;
}
addEventListener("scroll", mark, { passive: true });
mark();

// excerpt is the text around the first word that was found, with the words marked.
function excerpt(text, query) {
  const wanted = [...lower(query), ...terms(query).flatMap((term) => term.filter((other) => other.length === 1).flat())];
  const found = wanted.map((w) => text.toLowerCase().indexOf(w)).filter((i) => i >= 0);
  const at = found.length > 0 ? Math.max(0, Math.min(...found) - 40) : 0;
  const from = at > 0 ? text.indexOf(" ", at) : 0; // at a word
  const space = text.indexOf(" ", at + 140);
  const to = space < 0 ? text.length : space; // and ends with one
  const cut = (at > 0 ? "…" : "") + text.slice(from, to) + (to < text.length ? " …" : "");
  const parts = cut.split(new RegExp(`(${wanted.join("|")})`, "gi"));
  return parts.map((part, i) => {
    if (i % 2 === 0) return part;
    const mark = document.createElement("mark");
    mark.textContent = part;
    return mark;
  });
}

// A table with sentences in it, or too wide for a narrow screen, is read there cell by cell. One of many columns is pushed aside.
const narrow = matchMedia("(max-width: 59.99rem)");
function stack() {
  for (const table of document.querySelectorAll("article table")) {
    const titles = table.tHead ? [...table.tHead.rows[0].cells].map((cell) => cell.textContent) : [];
    for (const row of table.tBodies[0]?.rows || []) [...row.cells].forEach((cell, i) => { if (i > 0 && titles[i]) cell.dataset.title = titles[i] });
    const long = [...table.querySelectorAll("td")].some((td) => td.textContent.length > 60);
    const wide = narrow.matches && table.scrollWidth > table.clientWidth;
    if (table.rows[0].cells.length <= 4 && (long || wide)) table.classList.add("stack");
  }
}
narrow.addEventListener("change", stack);
stack();

const box = document.getElementById("ui-search");
const results = document.getElementById("ui-results");

// load fetches the index when it is first needed.
let loading;
function load() {
  loading ||= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = up + "assets/search-index.js";
    script.onload = () => resolve(window.searchIndex);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

async function search() {
  const query = box.value.trim();
  if (!query) return void (results.hidden = true);
  const found = rank(await load(), query);
  if (box.value.trim() !== query) return; // a later one is under way
  results.replaceChildren(...found.map((section) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = up + section.a;
    const title = document.createElement("strong");
    const page = section.p.split(": ")[0]; // as the navigation has it
    title.textContent = section.h && section.h !== section.p ? `${page}: ${section.h}` : section.p;
    const text = document.createElement("span");
    text.append(...excerpt(section.t, query));
    link.append(title, text);
    item.append(link);
    return item;
  }));
  if (found.length === 0) {
    const item = document.createElement("li");
    item.className = "none";
    item.textContent = "Nothing has all of these words.";
    results.append(item);
  }
  results.hidden = false;
}

box.addEventListener("input", search);
box.addEventListener("focus", () => { load(); search() });
document.addEventListener("click", (e) => { if (!e.target.closest(".search")) results.hidden = true });
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    e.preventDefault();
    box.focus();
  } else if (e.key === "Escape") {
    results.hidden = true;
    box.blur();
  } else if ((e.key === "ArrowDown" || e.key === "ArrowUp") && !results.hidden) {
    const links = [...results.querySelectorAll("a")];
    const next = links.indexOf(document.activeElement) + (e.key === "ArrowDown" ? 1 : -1);
    e.preventDefault();
    (links[next] || box).focus();
  } else if (e.key === "Enter" && document.activeElement === box) {
    search().then(() => results.querySelector("a")?.click()); // of what is in the box now
  }
});
if (new URLSearchParams(location.search).has("q")) { // a search can be linked to
  box.value = new URLSearchParams(location.search).get("q");
  search();
}
