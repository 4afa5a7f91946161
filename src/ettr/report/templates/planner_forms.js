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

  function recovery(at, length, same, reset) {
    const total = at.soft + at.light + at.deep;
    if (total === 0) { return { mean: at.queue + length, light: 0, deep: 0 }; }
    const fails = -Math.expm1(-total * length);
    const left = (total - same + same * Math.exp(-total * length)) / total, tries = 1 / left;
    if (!(left > 0)) { return { mean: Infinity, light: 0, deep: 0 }; }
    return { mean: tries * (at.queue + fails / total),
      light: reset ? 0 : tries * fails * at.light / total, deep: tries * fails * at.deep / total };
  }

  function untilThrough(at) {
    const total = at.soft + at.light + at.deep, load = total * at.deepRestart;
    if (load > 600) { return Infinity; }
    return at.queue * Math.exp(load) + (total ? Math.expm1(load) / total : at.deepRestart);
  }

  function stretch(at, soft, light, length) {
    const lightRate = at.light + at.soft * soft.light, deepRate = at.deep + at.soft * soft.deep;
    const total = lightRate + deepRate, delay = 1 + at.soft * soft.mean;
    if (total === 0) { return { finishes: 1, mean: delay * length }; }
    function once(way) {
      const stops = -Math.expm1(-total * way);
      return [1 - stops, stops * lightRate / total, delay * stops / total];
    }
    const goesOn = 1 - light.deep;
    let [done, back, run] = once(length + at.lag);
    const loops = 1 - back * goesOn;
    const again = loops > 0 ? done / loops : 0;
    const againMean = loops > 0 ? (run + back * light.mean) / loops : Infinity;
    if (at.lag === 0) { return { finishes: again, mean: againMean }; }
    [done, back, run] = once(length);
    return { finishes: done + back * goesOn * again,
      mean: run + back * (light.mean + goesOn * againMean) };
  }

  // ETTR under three kinds of failure: ettr.plan.levels
  function levels(at) {
    const soft = recovery(at, at.softTime, at.soft, false);
    const light = recovery(at, at.lightRestart, at.soft + at.light, true);
    const neverEnds = (recovery, rate) => rate > 0 && recovery.mean === Infinity;
    if (neverEnds(soft, at.soft) || neverEnds(light, at.light + at.soft * soft.light)) { return 0; }
    const length = at.interval * (1 + at.slowdown) + at.stall;
    const one = stretch(at, soft, light, length), n = at.nLight, productive = n * at.interval;
    const fails = 1 - one.finishes;
    if (fails <= 1e-15) { return productive / (n * one.mean); }
    const done = Math.pow(one.finishes, n), again = n + at.durableLag / length;
    const logAgain = one.finishes > 0 ? again * Math.log(one.finishes) : -Infinity;
    if (logAgain < -600) { return 0; }
    const deep = untilThrough(at), retry = Math.expm1(-logAgain) * (one.mean / fails + deep);
    return productive / (one.mean * (1 - done) / fails + (1 - done) * (deep + retry));
  }

  const affine = (c, nodes, restart) => c[0] + c[1] / nodes + c[2] * restart;

  // what a scheme states for so many nodes, as the kinds of failure that `levels` knows
  function schemeLevels(scheme, s, interval) {
    const per = { soft: [0, 0], light: [0, 0], deep: [0, 0] };
    for (const r of scheme.responses) {
      const rate = r.share * s.rate, kind = per[r.level];
      const until = affine(r.restart, s.nodes, s.restart) + affine(r.lost, s.nodes, s.restart) +
        r.lost_interval_share * interval;
      kind[0] += rate;
      kind[1] += rate * until;
    }
    const mean = (kind) => kind[0] ? kind[1] / kind[0] : 0;
    return { interval, stall: affine(scheme.stall, s.nodes, s.restart), slowdown: scheme.slowdown,
      lag: affine(scheme.lag, s.nodes, s.restart),
      nLight: scheme.two_levels ? Math.max(1, scheme.durable_period_s / interval) : 1,
      durableLag: scheme.two_levels ? scheme.persist_s : 0,
      soft: per.soft[0], light: per.light[0], deep: per.deep[0], softTime: mean(per.soft),
      lightRestart: mean(per.light), deepRestart: mean(per.deep), queue: s.queue };
  }

  function schemeBest(scheme, s) {
    const shortest = Math.max(scheme.step_s, affine(scheme.shortest, s.nodes, s.restart));
    const longest = scheme.two_levels ? scheme.durable_period_s : 7 * 86400;
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

  return { longRun, optimalShare, paper, levels, schemeLevels, schemeBest, affine };
})();
