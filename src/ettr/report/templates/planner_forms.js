"use strict";
// The exact forms of ettr.plan, again: a test holds these to the Python ones.
const forms = (function () {
  // ETTR of a run without end; exponents below 0 only, so that nothing overflows
  function longRun(rate, interval, write, restart, queue) {
    const segment = interval + write, load = rate * segment;
    if (load < 1e-300) { return interval / segment; }
    const gone = Math.exp(-rate * restart - load) / -Math.expm1(-load);
    return rate * interval * gone / (1 + rate * queue);
  }

  function minusXMinusLog(x) {
    if (x > 0.01) { return -x - Math.log1p(-x); }
    return x * x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x * (1 / 5 + x * (1 / 6 + x / 7)))));
  }

  // the x in [0, 1] with -x - ln(1 - x) = writeShare, both in units of the MTTF
  function optimalShare(writeShare) {
    let x = Math.min(Math.sqrt(2 * writeShare), -Math.expm1(-1 - writeShare));
    if (x === 0 || x === 1) { return x; }
    for (let i = 0; i < 60; i++) {
      const step = (minusXMinusLog(x) - writeShare) * (1 - x) / x;
      if (!(step > 1e-16 * x)) { break; }
      x -= step;
    }
    return x;
  }

  // the paper's second form; null where it has no meaning
  function paper(rate, interval, write, restart) {
    const left = 1 - rate * (restart + interval / 2);
    return left > 0 ? left / (1 + write / interval) : null;
  }

  const DEPTH = { soft: 0, light: 1, deep: 2 };

  // failures with their recoveries folded in; null where a recovery never ends
  function folded(at) {
    const wait = (kind) => kind.waits ? at.queue : 0, time = (kind) => wait(kind) + kind.restart;
    const kinds = at.kinds.filter((kind) => kind.rate > 0)
      .sort((a, b) => DEPTH[a.level] - DEPTH[b.level] || time(a) - time(b));
    const total = kinds.reduce((sum, kind) => sum + kind.rate, 0);
    let lost = 0, stale = 0, laterRate = 0, laterTime = 0;
    const later = { soft: 0, light: 0, deep: 0 };
    for (const kind of kinds.reverse()) {
      const ends = Math.exp(-total * kind.restart), fails = -Math.expm1(-total * kind.restart);
      const left = (laterRate + (total - laterRate) * ends) / total;
      if (!(left > 0)) { return null; }
      const mean = (wait(kind) + fails / total + fails * laterTime / total) / left, endsAt = {};
      for (const level in later) {
        endsAt[level] = (ends * (level === kind.level) + fails * later[level] / total) / left;
      }
      lost += kind.rate * endsAt.soft * kind.lost;
      stale += kind.rate * endsAt.soft * kind.stale;
      laterRate += kind.rate;
      laterTime += kind.rate * mean;
      for (const level in later) { later[level] += kind.rate * endsAt[level]; }
    }
    return { light: later.light, deep: later.deep, delay: 1 + laterTime, lost, stale };
  }

  // a way through training that a deep failure may cut off, and ways in a row
  const then = (a, b) => ({ through: a.through * b.through, cut: a.cut + a.through * b.cut,
    mean: a.mean + a.through * b.mean });
  function times(way, n) {
    if (way.cut === 0 || n === 0) { return { through: 1, cut: 0, mean: n ? n * way.mean : 0 }; }
    if (way.through === 0) { return way; }
    const log = way.cut < 0.5 ? Math.log1p(-way.cut) : Math.log(way.through), cut = -Math.expm1(n * log);
    return { through: Math.exp(n * log), cut, mean: way.mean * cut / way.cut };
  }

  function stretch(failures, first, again) {
    const total = failures.light + failures.deep;
    function once(way) {
      const load = total * way;
      if (load < 1e-300) { return [1, 0, 0, way]; }
      const stops = -Math.expm1(-load);
      return [Math.exp(-load), stops * failures.light / total, stops * failures.deep / total, stops / total];
    }
    let [done, back, cut, mean] = once(again);
    const left = done + cut;
    if (!(left > 0)) { return { through: 0, cut: 0, mean: Infinity }; }
    const next = { through: done / left, cut: cut / left, mean: mean / left };
    if (first === again) { return next; }
    [done, back, cut, mean] = once(first);
    return { through: done + back * next.through, cut: cut + back * next.cut, mean: mean + back * next.mean };
  }

  // mean training time from one usable durable checkpoint to the next
  function blockTraining(at, failures, length) {
    const n = at.nLight, again = length + at.lag, steady = stretch(failures, length, again);
    if (failures.deep === 0) { return n * steady.mean; }
    const after = Math.max(0, at.durableLag - at.lag), whole = Math.floor(after / length);
    const part = after - whole * length, fresh = stretch(failures, again, again);
    let straight = times(steady, n), restored = then(fresh, times(steady, n - 1 + whole));
    if (part > 0) {
      const ending = stretch(failures, part, at.lag + part);
      straight = then(then(stretch(failures, length - part, again), times(steady, n - 1)), ending);
      restored = then(restored, ending);
    }
    if (!(restored.through > 0)) { return Infinity; }
    return straight.mean + straight.cut * restored.mean / restored.through;
  }

  // work to be made good after soft failures, in each stretch that is kept
  function lostPerStretch(at, failures, length) {
    const kept = Math.exp(-failures.light * length), lost = -Math.expm1(-failures.light * length);
    const behind = (n) => lost * n < 1e-9 ? n : kept * (1 - Math.pow(kept, n)) / lost;
    const overlap = at.lag / length, whole = Math.floor(overlap), part = overlap - whole;
    const mean = (1 - part) * behind(whole) + part * behind(whole + 1);
    return length * (failures.lost + failures.stale * at.interval * (0.5 + mean));
  }

  // ETTR under failures of several kinds: ettr.plan.levels
  function levels(at) {
    const failures = folded(at);
    if (!failures || !isFinite(failures.delay)) { return 0; }
    const n = at.nLight, length = at.interval * (1 + at.slowdown) + (at.stall + at.durableStall / n);
    const training = blockTraining(at, failures, length);
    if (!isFinite(training)) { return 0; }
    return Math.max(0, n * (at.interval - lostPerStretch(at, failures, length)) / (failures.delay * training));
  }

  const affine = (c, nodes, restart) => c[0] + c[1] / nodes + c[2] * restart;

  // what a scheme states for so many nodes, as the kinds of failure that `levels` knows
  function schemeLevels(scheme, s, interval) {
    const value = (numbers) => affine(numbers, s.nodes, s.restart);
    const whole = scheme.responses.find((r) => r.domain === "job");
    const kinds = scheme.responses.map((r) => {
      // on one node the loss of the node or of its rack is that of the job
      const as = s.nodes === 1 && (r.domain === "node" || r.domain === "rack") ? whole : r;
      return { level: as.level, rate: r.share * s.rate, restart: value(as.restart),
        lost: value(as.lost) + value(as.absent) * s.queue, stale: as.lost_staleness_share,
        waits: as.waits };
    });
    return { interval, stall: value(scheme.stall), slowdown: scheme.slowdown, lag: value(scheme.lag),
      nLight: Math.max(1, Math.floor(scheme.durable_period_s / interval + 0.5)),
      durableStall: value(scheme.durable_stall), durableLag: value(scheme.durable_lag), kinds,
      queue: s.queue };
  }

  function schemeBest(scheme, s) {
    const shortest = Math.max(scheme.step_s, affine(scheme.shortest, s.nodes, s.restart));
    const longest = scheme.durable_period_s || 7 * 86400;
    const at = (log) => levels(schemeLevels(scheme, s, Math.exp(log)));
    let low = Math.log(shortest), high = Math.log(Math.max(longest, shortest));
    const grid = Array.from({ length: 25 }, (_, i) => low + (high - low) * i / 24);
    let peak = 0, most = -1;
    grid.forEach((log, i) => { const value = at(log); if (value > most) { most = value; peak = i; } });
    low = grid[Math.max(peak - 1, 0)];
    high = grid[Math.min(peak + 1, 24)];
    const golden = (Math.sqrt(5) - 1) / 2;
    for (let i = 0; i < 40; i++) {
      const left = high - golden * (high - low), right = low + golden * (high - low);
      if (at(left) >= at(right)) { high = right; } else { low = left; }
    }
    const middle = (low + high) / 2;
    return Math.exp(at(middle) >= most ? middle : grid[peak]);
  }

  // why a job cannot use a scheme; null where it can
  function obstacle(scheme, s, hostBytes) {
    if (scheme.obstacle) { return scheme.obstacle; }
    if (s.nodes < scheme.min_nodes) {
      return "it needs " + scheme.min_nodes + " nodes or more; use more nodes";
    }
    const needs = affine(scheme.host_bytes, s.nodes, s.restart);
    return needs > hostBytes
      ? "it needs " + (needs / 1e9).toPrecision(3) + " GB of a node's memory; use more nodes" : null;
  }

  // share of the wall clock in which GPUs are held: each failure of the time held waits once
  const heldShare = (rate, queue) => 1 / (1 + rate * queue);

  return { longRun, heldShare, optimalShare, paper, levels, schemeLevels, schemeBest, affine, obstacle };
})();
