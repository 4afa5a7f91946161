"use strict";
// The spans by row, so that a drawing looks only at what is in view. Times: seconds from the begin.
const data = JSON.parse(document.getElementById("spans-data").textContent);
const LENGTH = Math.max(data.length_s, 1);
const ENDS = ["completed", "completed", "failure", "preemption", "other"];  // as JobEnd lists them

function emptyRow() { return { starts: [], ends: [], items: [], lanes: [], of: [], reach: [] }; }

const jobs = data.jobs.map(([id, name, user, gpus, nodes, start, end, ended, words, blamed, runs]) =>
  ({ what: "job", id, name, user, gpus, nodes, start, end, until: end === null ? LENGTH : end,
    kind: ENDS[ended], words, blamed, runs, row: runs.length ? runs[0][0] : -1 }));
const outages = data.outages.map(([row, kind, state, reason, start, end]) =>
  ({ what: "outage", row, kind, state, reason, start, end, until: end === null ? LENGTH : end }));
const marks = data.marks.map(([row, start, words]) =>
  ({ what: "mark", row, start, until: start, words }));
const jobRows = data.nodes.map(emptyRow), outageRows = data.nodes.map(emptyRow);
const markRows = data.nodes.map(emptyRow);

// spans come in the order of their starts: `reach` is the latest end so far, which only grows
function put(row, item, lane, of) {
  const n = row.starts.length;
  row.starts.push(item.start);
  row.ends.push(item.until);
  row.items.push(item);
  row.lanes.push(lane);
  row.of.push(of);
  row.reach.push(n ? Math.max(row.reach[n - 1], item.until) : item.until);
}
for (const job of jobs) {
  for (const [first, last, lane, of] of job.runs) {
    for (let row = first; row <= last; row += 1) { put(jobRows[row], job, lane, of); }
  }
}
for (const one of outages) { put(outageRows[one.row], one, 0, 1); }
for (const one of marks) { put(markRows[one.row], one, 0, 1); }

// the first place whose value is not below x, in values that grow
function place(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) { low = middle + 1; } else { high = middle; }
  }
  return low;
}

const byTime = (a, b) => a.at - b.at || a.item.row - b.item.row;
const troubles = outages.map((item) => ({ at: item.start, item }))
  .concat(marks.map((item) => ({ at: item.start, item })))
  .concat(jobs.filter((job) => job.kind === "failure" && job.row >= 0)
    .map((item) => ({ at: item.until, item }))).sort(byTime);
const drawnJobs = jobs.filter((job) => job.row >= 0).map((item) => ({ at: item.start, item }));

// -- words ----------------------------------------------------------------------------------------

const two = (n) => String(n).padStart(2, "0");
// UTC throughout: the reader's own zone, and its summer time, change nothing
function dateOf(s) { return new Date((data.since_s + s) * 1000); }
function clock(s, withSeconds) {
  const d = dateOf(s);
  return two(d.getUTCHours()) + ":" + two(d.getUTCMinutes()) + (withSeconds ? ":" + two(d.getUTCSeconds()) : "");
}
function day(s) {
  const d = dateOf(s);
  return d.getUTCFullYear() + "-" + two(d.getUTCMonth() + 1) + "-" + two(d.getUTCDate());
}
const moment = (s) => day(s) + " " + clock(s, true);
function length(s) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (s >= 2 * size) { return (s / size).toPrecision(3) + " " + unit; }
  }
  return s.toFixed(0) + " s";
}
function span(item) {
  const open = item.end === null;
  return moment(item.start) + " to " + (open ? "the end of the logs" : moment(item.until)) + " UTC, " +
    (open ? "≥ " : "") + length(item.until - item.start);
}
const nodeName = (row) => {
  const group = data.groups[data.nodes[row][1]];
  return data.nodes[row][0] + (group ? " (" + group + ")" : "");
};
const counted = (n, noun) => (n === null ? "" : n + " " + noun + (n === 1 ? "" : "s"));
function words(item) {
  if (item.what === "job") {
    const size = [counted(item.gpus, "GPU"), counted(item.nodes, "node")];
    return ["job " + item.id, item.name, item.user, size.filter(Boolean).join(" on "), span(item), item.words]
      .filter(Boolean).join(" · ");
  }
  if (item.what === "outage") {
    return ["node " + nodeName(item.row), item.kind + " (" + item.state + ")", item.reason, span(item)]
      .filter(Boolean).join(" · ");
  }
  return "✕ " + moment(item.start) + " UTC · node " + nodeName(item.row) + " · " + item.words;
}
