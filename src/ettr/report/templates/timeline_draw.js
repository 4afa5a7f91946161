// -- where things lie -----------------------------------------------------------------------------

const root = document.documentElement;
const viewport = document.getElementById("viewport"), space = document.getElementById("space");
const canvas = document.getElementById("canvas"), context = canvas.getContext("2d");
const AXIS = 34, HEAD = 16, LOWEST = 1, HIGHEST = 40;
const FONT = "system-ui, 'DejaVu Sans', sans-serif";
const view = { from: 0, to: LENGTH, rowHeight: 18, selected: null };
const shape = { width: 0, height: 0, gutter: 0, tops: [], heads: [], total: 0, printing: false };
let colours = {}, patterns = {};

// the top of each row below those of its headings; rows too low for words have no headings
function layRows() {
  const tops = new Float64Array(data.nodes.length + 1), heads = [];
  const withHeads = data.groups.some(Boolean) && view.rowHeight >= 8;
  let y = 0, group = -1;
  data.nodes.forEach(([, own], row) => {
    if (own !== group) {
      heads.push({ group: own, row, y });
      if (withHeads) { y += HEAD; }
      group = own;
    }
    tops[row] = y;
    y += view.rowHeight;
  });
  tops[data.nodes.length] = y;
  Object.assign(shape, { tops, heads: data.groups.some(Boolean) ? heads : [], withHeads, total: y });
  space.style.height = shape.printing ? "" : y + AXIS + "px";
}

function theme() {
  const style = getComputedStyle(root);
  const value = (name) => style.getPropertyValue("--" + name).trim();
  for (const name of ["paper", "panel", "ink", "soft", "line", "mark", "failure", "preemption", "other",
    "down", "drain", "planned", "on-job"]) { colours[name] = value(name); }
  colours.completed = value("job");
  patterns = { down: colours.down, drain: hatched(colours.drain, 1), planned: hatched(colours.planned, -1) };
}

function hatched(colour, slope) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const brush = tile.getContext("2d");
  brush.fillStyle = colours.paper;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = colour;
  brush.lineWidth = 2.5;
  for (const shift of [-6, 0, 6]) {
    brush.beginPath();
    brush.moveTo(shift, slope > 0 ? 6 : 0);
    brush.lineTo(shift + 6, slope > 0 ? 0 : 6);
    brush.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function measure() {
  const ratio = shape.printing ? 2 : window.devicePixelRatio || 1;
  const width = shape.printing ? 680 : viewport.clientWidth;
  const height = shape.printing ? Math.ceil(shape.total + AXIS) : viewport.clientHeight;
  Object.assign(shape, { width, height, gutter: Math.round(Math.min(130, width * 0.2)) });
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
}

const scale = () => (shape.width - shape.gutter) / (view.to - view.from);
const xOf = (s) => shape.gutter + (s - view.from) * scale();
const timeAt = (x) => view.from + (x - shape.gutter) / scale();
const scrolled = () => (shape.printing ? 0 : viewport.scrollTop);
const yOf = (row) => AXIS + shape.tops[row] - scrolled();
function rowAt(y) {
  const row = place(shape.tops, y - AXIS + scrolled() + 1e-6) - 1;
  const inside = row >= 0 && row < data.nodes.length && y >= AXIS;
  return inside && y - yOf(row) <= view.rowHeight ? row : -1;
}

// -- drawing --------------------------------------------------------------------------------------

// rectangles of the spans of a row that are in view; those in one column of pixels are one
function collect(spans, y, rects, pad) {
  const right = shape.width, height = view.rowHeight, seen = {};
  for (let i = place(spans.reach, view.from); i < spans.starts.length; i += 1) {
    if (spans.starts[i] > view.to) { break; }
    if (spans.ends[i] < view.from) { continue; }
    const item = spans.items[i], x = Math.max(xOf(spans.starts[i]), shape.gutter);
    const wide = Math.min(xOf(spans.ends[i]), right) - x, lane = spans.lanes[i];
    const column = Math.floor(x);
    if (wide < 1.5) {
      if (seen[item.kind + lane] === column) { continue; }
      seen[item.kind + lane] = column;
    }
    const high = height / spans.of[i], gap = pad && high > 5 ? 1 : 0;
    rects[item.kind].push(x, y + lane * high + gap, Math.max(wide - (pad && wide > 4 ? 1 : 0), 1), high - gap, item);
  }
}

function fill(rects, styleOf) {
  let n = 0;
  for (const kind of Object.keys(rects)) {
    context.fillStyle = styleOf[kind];
    const list = rects[kind];
    for (let i = 0; i < list.length; i += 5) {
      context.fillRect(list[i], list[i + 1], list[i + 2], list[i + 3]);
    }
    n += list.length / 5;
  }
  return n;
}

// of a job that failed only the end is red: what was lost, at most what one failure loses
function lost(rects) {
  context.fillStyle = colours.failure;
  for (let i = 0; i < rects.length; i += 5) {
    const item = rects[i + 4], right = Math.min(xOf(item.until), shape.width);
    const x = Math.max(rects[i], xOf(Math.max(item.start, item.until - data.lost_s)));
    const wide = Math.max(right - x, Math.min(rects[i + 2], 2));
    if (right - wide >= shape.gutter) { context.fillRect(right - wide, rects[i + 1], wide, rects[i + 3]); }
  }
  return 0;
}

function absent(row, y) {
  const [, , from, to] = data.nodes[row];
  context.fillStyle = colours.panel;
  if (from > view.from) { context.fillRect(shape.gutter, y, Math.max(xOf(from) - shape.gutter, 0), view.rowHeight); }
  if (to < view.to) {
    const x = Math.max(xOf(to), shape.gutter);
    context.fillRect(x, y, Math.max(shape.width - x, 0), view.rowHeight);
  }
}

function cross(x, y) {
  const reach = Math.max(2.5, Math.min(view.rowHeight / 2 - 2, 5)), middle = y + view.rowHeight / 2;
  for (const [colour, wide] of [[colours.paper, 4], [colours.failure, 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = wide;
    context.beginPath();
    context.moveTo(x - reach, middle - reach);
    context.lineTo(x + reach, middle + reach);
    context.moveTo(x + reach, middle - reach);
    context.lineTo(x - reach, middle + reach);
    context.stroke();
  }
}

// crosses where a failure ended a job: on the node that is blamed, else on the job's first row
function crosses(first, last) {
  const seen = new Set();
  const put_ = (item, at, row) => {
    if (at < view.from || at > view.to || row < first || row > last) { return; }
    const key = Math.round(xOf(at) / 3) + ":" + Math.round(yOf(row) / 3);
    if (!seen.has(key)) { cross(xOf(at), yOf(row)); }
    seen.add(key);
  };
  for (const { at, item } of troubles) {
    if (item.what === "job") { put_(item, at, item.blamed === null ? item.row : item.blamed); }
    if (item.what === "mark") { put_(item, at, item.row); }
  }
}

// names in the spans that have room for one, once for rows next to each other
function names(rects, first) {
  if (view.rowHeight < 12) { return; }
  context.font = "11px " + FONT;
  context.textBaseline = "middle";
  context.fillStyle = colours["on-job"];
  for (const list of Object.values(rects)) {
    for (let i = 0; i < list.length; i += 5) {
      const [x, y, wide, high, item] = list.slice(i, i + 5);
      const row = rowAt(y + 1);
      if (wide < 40 || high < 11 || !(row === first || item.runs.some((run) => run[0] === row))) { continue; }
      context.fillText(fitted(item.name || item.id, wide - 6), x + 3, y + high / 2);
    }
  }
}

function fitted(text, wide) {
  if (context.measureText(text).width <= wide) { return text; }
  let n = Math.floor(text.length * wide / context.measureText(text).width);
  while (n > 0 && context.measureText(text.slice(0, n) + "…").width > wide) { n -= 1; }
  return n > 0 ? text.slice(0, n) + "…" : "";
}

function labels(first, last) {
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, shape.gutter, shape.height);
  context.textBaseline = "middle";
  context.fillStyle = colours.ink;
  context.font = Math.min(12, Math.max(9, view.rowHeight - 2)) + "px " + FONT;
  const named = view.rowHeight >= 9;
  for (let row = first; named && row <= last; row += 1) {
    context.fillText(fitted(data.nodes[row][0], shape.gutter - 8), 4, yOf(row) + view.rowHeight / 2);
  }
  if (!named && !shape.heads.length) { sparse(first, last); }
  context.font = "11px " + FONT;
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  headings(named);
}

// a rule above each group; its name above its rows, or in the margin where rows are too low for names
function headings(named) {
  let below = 0;
  shape.heads.forEach(({ group, y }, n) => {
    const top = AXIS + y - scrolled();
    const high = (n + 1 < shape.heads.length ? shape.heads[n + 1].y : shape.total) - y;
    if (top > shape.height || top + high < AXIS) { return; }
    if (shape.withHeads || high >= 10) {
      context.beginPath();
      context.moveTo(shape.withHeads ? 0 : shape.gutter, Math.round(top) + 0.5);
      context.lineTo(shape.width, Math.round(top) + 0.5);
      context.stroke();
    }
    if ((named && !shape.withHeads) || top < below) { return; }
    context.fillStyle = colours.soft;
    const wide = shape.withHeads ? shape.width : shape.gutter - 8;
    context.fillText(fitted(data.groups[group], wide), 4, top + 7);
    below = top + 14;
  });
}

// every so many rows a name, where all have no room
function sparse(first, last) {
  const step = Math.ceil(14 / view.rowHeight);
  context.font = "10px " + FONT;
  for (let row = Math.ceil(first / step) * step; row <= last; row += step) {
    context.fillText(fitted(data.nodes[row][0], shape.gutter - 8), 4, yOf(row) + view.rowHeight / 2);
  }
}

const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600,
  2592000, 7776000, 31536000];
function axis(rule) {
  const least = 74 / scale(), step = STEPS.find((one) => one >= least) || STEPS[STEPS.length - 1];
  const offset = data.since_s % step;
  if (!rule) {
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, shape.width, AXIS);
    context.fillStyle = colours.soft;
    context.font = "11px " + FONT;
    context.textBaseline = "middle";
    context.fillText(fitted("UTC", shape.gutter - 8), 4, AXIS / 2);
  }
  let last = "";
  for (let s = Math.ceil((view.from + offset) / step) * step - offset; s <= view.to; s += step) {
    const x = Math.round(xOf(s)) + 0.5;
    if (rule) {
      context.fillStyle = colours.line;
      context.fillRect(x, AXIS, 1, shape.height);
      continue;
    }
    if (x > shape.width - 60) { break; }
    if (step < 86400) { context.fillText(clock(s, step < 60), x + 2, 25); }
    if (day(s) !== last) { context.fillText(day(s), x + 2, step < 86400 ? 10 : 17); }
    last = day(s);
  }
}

// what is selected is framed on all of its rows
function frame() {
  const item = view.selected;
  if (!item) { return; }
  const x = Math.max(xOf(item.start), shape.gutter), right = Math.min(xOf(item.until), shape.width);
  context.strokeStyle = colours.mark;
  context.lineWidth = 2;
  const runs = item.what === "job" ? item.runs : [[item.row, item.row]];
  for (const [first, last] of runs) {
    const y = yOf(first);
    if (right >= shape.gutter && x <= shape.width) {
      context.strokeRect(x - 1, y - 1, Math.max(right - x, 2) + 2, yOf(last) - y + view.rowHeight + 2);
    }
  }
}

function draw() {
  const begin = performance.now();
  const rows = data.nodes.length;
  const first = Math.max(0, place(shape.tops, scrolled() - view.rowHeight));
  const last = Math.min(rows - 1, place(shape.tops, scrolled() + shape.height - AXIS));
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, shape.width, shape.height);
  axis(true);
  const spans = { completed: [], other: [], preemption: [], failure: [] };
  const out = { planned: [], drain: [], down: [] };
  for (let row = first; row <= last; row += 1) {
    absent(row, yOf(row));
    collect(jobRows[row], yOf(row), spans, true);
    collect(outageRows[row], yOf(row), out, false);
  }
  const painted = Object.assign({}, colours, { failure: colours.completed });
  const n = fill(spans, painted) + lost(spans.failure) + fill(out, patterns);
  names(spans, first);
  crosses(first, last);
  frame();
  labels(first, last);
  axis(false);
  if (!rows) { context.fillText("No log names a node.", 8, AXIS + 20); }
  Object.assign(canvas.dataset, { from: view.from.toFixed(1), to: view.to.toFixed(1), spans: n,
    rows: last - first + 1, ms: (performance.now() - begin).toFixed(2) });
  root.dataset.timeline = "drawn";
}

let asked = false;
function redraw() {
  if (asked) { return; }
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}
