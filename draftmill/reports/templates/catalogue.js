"use strict";
// The table shows itself when this has taken it over: laying out a long one while it still arrives takes minutes.
document.documentElement.className = "js";
addEventListener("DOMContentLoaded", () => {
document.documentElement.className = "";
const table = document.getElementById("drafters");
if (!table) return;
const STEP = 250;
const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], all = [...body.rows];
const field = id => document.getElementById(id);
const filters = ["q", "family", "verdict", "device"].map(field).filter(Boolean);
const by = field("by"), status = field("status"), more = field("more");
const collator = new Intl.Collator("en", {numeric: true, sensitivity: "base"});
let sorted = "", ordered = all, fitting = all, limit = STEP;

// A cell's value: the number that it states for sorting, else its first text.
const text = cell => (cell.firstElementChild || cell).textContent.trim();
const value = cell => "s" in cell.dataset ? Number(cell.dataset.s) : cell.dataset.r ? "" : text(cell);
const column = key => heads.findIndex(head => head.dataset.key === key);

function sort(order) {
  const down = order.startsWith("-"), at = column(down ? order.slice(1) : order);
  if (at < 0) return;
  sorted = order;
  const keyed = all.map((row, place) => [value(row.cells[at]), place, row]);
  keyed.sort(([a, i], [b, j]) => {
    if (a === "" || b === "") return (a === "") - (b === "") || i - j; // what has no value is last either way
    const found = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
    return (down ? -found : found) || i - j;
  });
  ordered = keyed.map(([, , row]) => row);
  heads.forEach((head, place) =>
    head.setAttribute("aria-sort", place !== at ? "none" : down ? "descending" : "ascending"));
  by.value = order;
}

function filter() {
  const words = field("q").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [family, verdict] = ["family", "verdict"].map(id => field(id).value);
  const device = field("device") ? field("device").value : "";
  const on = device && heads.findIndex(head => head.dataset.device === device);
  fitting = ordered.filter(row => (!family || text(row.cells[1]) === family)
    && (!verdict || text(row.cells[3]) === verdict) && (!device || row.cells[on].dataset.r)
    && (!words.length || contains(row, words)));
  limit = STEP;
  draw();
}

function draw() {
  body.replaceChildren(...fitting.slice(0, limit));
  more.hidden = fitting.length <= limit;
  const at = column(sorted.replace(/^-/, "")), figure = at >= 0 && heads[at].dataset.figure;
  const regimes = new Set(figure ? fitting.map(row => row.cells[at].dataset.r).filter(Boolean) : []);
  const count = (fitting.length === all.length ? "" : `${fitting.length} of `) + `${all.length} drafters`;
  status.textContent = count + (more.hidden ? "" : `, the first ${limit} shown`)
    + (regimes.size > 1 ? `. These ${figure} are of ${regimes.size} regimes: sorted to find, they do not compare.` : "");
}

function contains(row, words) {
  row.words = row.words || row.textContent.toLowerCase();
  return words.every(word => row.words.includes(word));
}

function remember() {
  const state = new URLSearchParams(filters.filter(each => each.value).map(each => [each.id, each.value]));
  if (sorted && sorted !== "name") state.set("sort", sorted);
  history.replaceState(null, "", "#" + state);
}

function recall() {
  const state = new URLSearchParams(location.hash.slice(1));
  for (const each of filters) each.value = state.get(each.id) || "";
  sort(state.get("sort") || "name");
  filter();
}

function choose(order) { sort(order); filter(); remember(); }

for (const [id, at] of [["family", 1], ["verdict", 3]]) {
  const values = [...new Set(all.map(row => text(row.cells[at])).filter(Boolean))].sort(collator.compare);
  field(id).append(...values.map(each => new Option(each)));
}
for (const head of heads) {
  const button = document.createElement("button"), key = head.dataset.key;
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  const first = head.dataset.figure || key === "date" ? "-" : "";
  button.addEventListener("click", () => {
    const [one, other] = [first + key, first ? key : "-" + key];
    choose(sorted === one ? other : one);
  });
  for (const [order, said] of [[key, "up"], ["-" + key, "down"]]) by.append(new Option(`${button.textContent}, ${said}`, order));
}
more.firstElementChild.addEventListener("click", () => { limit += STEP; draw(); });
more.lastElementChild.addEventListener("click", () => { limit = all.length; draw(); });
addEventListener("beforeprint", () => { limit = all.length; draw(); });
by.addEventListener("change", () => choose(by.value));
for (const each of filters) each.addEventListener("input", () => { filter(); remember(); });
field("controls").addEventListener("submit", event => event.preventDefault());
field("controls").hidden = false;
addEventListener("hashchange", recall);
recall();
});
