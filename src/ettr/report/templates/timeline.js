// -- moving ---------------------------------------------------------------------------------------

const SHORTEST = 10;
function show(from, to) {
  const margin = LENGTH * 0.02, most = LENGTH + 2 * margin;
  const wide = Math.min(Math.max(to - from, Math.min(SHORTEST, most)), most);
  const middle = (from + to) / 2;
  view.from = Math.min(Math.max(middle - wide / 2, -margin), LENGTH + margin - wide);
  view.to = view.from + wide;
  redraw();
}
const move = (share) => show(view.from + share * (view.to - view.from), view.to + share * (view.to - view.from));
function zoom(factor, at) {
  const fixed = at === undefined ? (view.from + view.to) / 2 : at;
  show(fixed + (view.from - fixed) * factor, fixed + (view.to - fixed) * factor);
}
function rowHeights(height) {
  const middle = rowAt(AXIS + (shape.height - AXIS) / 2);
  view.rowHeight = Math.min(Math.max(height, LOWEST), HIGHEST);
  layRows();
  if (middle >= 0) { viewport.scrollTop = shape.tops[middle] - (shape.height - AXIS) / 2; }
  redraw();
}
// all rows at once if they stay apart
function fitRows() {
  const room = parseFloat(getComputedStyle(viewport).maxHeight) || viewport.clientHeight;
  return Math.min(18, Math.max(3, (room - AXIS) / Math.max(data.nodes.length, 1)));
}

function reveal(item, at) {
  if (at < view.from || at > view.to) { const half = (view.to - view.from) / 2; show(at - half, at + half); }
  const y = yOf(item.row);
  if (item.row >= 0 && (y < AXIS || y + view.rowHeight > shape.height)) {
    viewport.scrollTop = shape.tops[item.row] - (shape.height - AXIS) / 2;
  }
  select(item);
}
function step(list, by) {
  if (!list.length) { return say(["Nothing of that kind is shown."]); }
  const now = list.findIndex((one) => one.item === view.selected);
  const middle = (view.from + view.to) / 2;
  const next = now >= 0 ? now + by
    : by > 0 ? list.findIndex((one) => one.at >= (view.selected ? middle : view.from))
      : list.length - 1 - [...list].reverse().findIndex((one) => one.at <= view.to);
  const { at, item } = list[(next + list.length) % list.length];
  reveal(item, at);
}

// -- saying ---------------------------------------------------------------------------------------

const detail = document.getElementById("detail");
function say(lines) {
  detail.replaceChildren(...lines.map((line) => {
    const made = document.createElement("p");
    made.textContent = line;
    return made;
  }));
}
function select(item) {
  view.selected = item;
  say(item ? [words(item)] : []);
  redraw();
}
const NEAR = 4;
function hits(x, y) {
  const row = rowAt(y);
  if (row < 0 || x < shape.gutter) { return { row, found: [] }; }
  const early = timeAt(x - NEAR), late = timeAt(x + NEAR), found = [];
  const failed = troubles.filter(({ at, item }) => item.what === "job" && item.blamed === row &&
    item.row !== row && at >= early && at <= late).map((one) => one.item);
  for (const spans of [markRows[row], outageRows[row], jobRows[row]]) {
    for (let i = place(spans.reach, early); i < spans.starts.length && spans.starts[i] <= late; i += 1) {
      const high = view.rowHeight / spans.of[i], lane = Math.floor((y - yOf(row)) / high);
      if (spans.ends[i] >= early && lane === spans.lanes[i]) { found.push(spans.items[i]); }
    }
  }
  return { row, found: [...new Set([...failed, ...found])] };
}
const MOST_LINES = 4;
function point(x, y) {
  const { row, found } = hits(x, y);
  if (!found.length) {
    return say(row < 0 ? [] : ["node " + nodeName(row) + " · " + moment(timeAt(Math.max(x, shape.gutter))) + " UTC · nothing shown"]);
  }
  const lines = found.slice(0, MOST_LINES).map(words);
  if (found.length > MOST_LINES) { lines.push(found.length - MOST_LINES + " more here: zoom in"); }
  return say(lines);
}

let foundAt = -1;
function find(text) {
  const asked_ = text.trim().toLowerCase();
  if (!asked_) { return; }
  const rows = data.nodes.map(([name], row) => ({ row, hit: name.toLowerCase().includes(asked_) })).filter((one) => one.hit);
  const some = jobs.filter((job) => job.row >= 0 &&
    (job.id.toLowerCase() === asked_ || job.name.toLowerCase().includes(asked_) || job.user.toLowerCase() === asked_));
  const all = [...rows, ...some];
  if (!all.length) { say(["Nothing shown has " + text + " in its name. The tables and the JSON may have more."]); return; }
  foundAt = (foundAt + 1) % all.length;
  const one = all[foundAt];
  if (one.what === "job") { reveal(one, one.start); return; }
  viewport.scrollTop = shape.tops[one.row] - (shape.height - AXIS) / 2;
  view.selected = { what: "node", row: one.row, start: view.from, until: view.to };
  say(["node " + nodeName(one.row) + " (" + (foundAt + 1) + " of " + all.length + " found)"]);
  redraw();
}

// -- hands ----------------------------------------------------------------------------------------

const DO = {
  in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.3), right: () => move(0.3),
  all: () => show(0, LENGTH), thin: () => rowHeights(view.rowHeight / 1.5),
  thick: () => rowHeights(view.rowHeight * 1.5), next: () => step(troubles, 1), previous: () => step(troubles, -1),
};
for (const button of document.querySelectorAll("[data-do]")) {
  button.addEventListener("click", DO[button.dataset.do]);
}
const KEYS = {
  ArrowLeft: DO.left, ArrowRight: DO.right, "+": DO.in, "=": DO.in, "-": DO.out, "0": DO.all, "[": DO.thin,
  "]": DO.thick, n: DO.next, p: DO.previous, j: () => step(drawnJobs, 1), k: () => step(drawnJobs, -1),
  Escape: () => select(null),
};
viewport.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); act(); }
});
const finder = document.getElementById("find");
finder.addEventListener("input", () => { foundAt = -1; });
finder.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); find(finder.value); } });

canvas.addEventListener("wheel", (event) => {
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), timeAt(event.offsetX));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    move((event.deltaX || event.deltaY) / (shape.width - shape.gutter));
  }
}, { passive: false });

// one finger or the mouse moves, two fingers zoom; the browser itself scrolls rows under a finger
const down = new Map();
let travelled = 0;
const spread = () => { const [a, b] = [...down.values()]; return { wide: Math.max(Math.abs(a.x - b.x), 20), x: (a.x + b.x) / 2 }; };
canvas.addEventListener("pointerdown", (event) => {
  down.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
  travelled = 0;
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  const before = down.get(event.pointerId), now = { x: event.offsetX, y: event.offsetY };
  if (!before) { point(now.x, now.y); return; }
  const wasSpread = down.size === 2 ? spread() : null;
  down.set(event.pointerId, now);
  travelled += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
  if (wasSpread) {
    zoom(wasSpread.wide / spread().wide, timeAt(spread().x));
    show(view.from + (wasSpread.x - spread().x) / scale(), view.to + (wasSpread.x - spread().x) / scale());
  } else if (travelled > NEAR) {
    show(view.from - (now.x - before.x) / scale(), view.to - (now.x - before.x) / scale());
    if (event.pointerType === "mouse") { viewport.scrollTop -= now.y - before.y; }
  }
});
function lift(event) {
  if (event.type === "pointerup" && down.size === 1 && travelled <= NEAR) {
    point(event.offsetX, event.offsetY);
    const { found } = hits(event.offsetX, event.offsetY);
    view.selected = found[0] || null;
    redraw();
  }
  down.delete(event.pointerId);
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event.offsetX)));
viewport.addEventListener("scroll", redraw);

// -- screen and paper -----------------------------------------------------------------------------

function restyle() { theme(); redraw(); }
new MutationObserver(restyle).observe(root, { attributes: true, attributeFilter: ["data-theme"] });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
new ResizeObserver(() => { if (!shape.printing) { measure(); draw(); } }).observe(viewport);
let onScreen = 0;
window.addEventListener("beforeprint", () => {
  onScreen = view.rowHeight;
  shape.printing = true;
  // all rows on one sheet
  view.rowHeight = Math.min(18, 780 / Math.max(data.nodes.length, 1));
  layRows();
  measure();
  theme();
  draw();
});
window.addEventListener("afterprint", () => {
  shape.printing = false;
  view.rowHeight = onScreen;
  layRows();
  measure();
  theme();
  draw();
});
view.rowHeight = fitRows();
theme();
layRows();
measure();
draw();
