// what the fields take and the address keeps: pure functions, run by the tests without a browser
const planState = (function () {
  const UNITS = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400 };
  const NUMBERS = ["gpus", "per_1000", "interval_s", "write_s", "restart_s", "queue_s", "target", "days", "price"];

  function spell(s) {
    if (!isFinite(s)) { return "∞"; }
    for (const name of ["d", "h", "min"]) {
      if (s >= UNITS[name]) { return +(s / UNITS[name]).toPrecision(3) + " " + name; }
    }
    return +s.toPrecision(3) + " s";
  }

  // a number as typed: 16,384; of a time with its unit: 2min, 1.5 h; null where it is neither
  function parsed(name, text) {
    const match = /^\s*([0-9][0-9,]*\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*([a-z]*)\s*$/.exec(text.toLowerCase());
    if (!match) { return null; }
    const number = Number(match[1].replaceAll(",", "") + (match[2] || ""));
    if (!name.endsWith("_s")) { return match[3] || !isFinite(number) ? null : number; }
    // a time without a unit could be anything, except 0
    const unit = match[3] ? UNITS[match[3]] : number === 0 ? 1 : undefined;
    return unit === undefined || !isFinite(number * unit) ? null : number * unit;
  }

  function allowed(name, value) {
    if (value === null) { return false; }
    if (name === "gpus") { return value >= 1 && value <= 1e7; }
    if (name === "per_1000" || name === "interval_s" || name === "days") { return value > 0 && value <= 1e9; }
    return name === "target" ? value > 0 && value < 1 : value >= 0 && value <= 1e9;
  }

  function written(state, prefix) {
    const pairs = NUMBERS.filter((name) => state[name] !== null && state[name] !== undefined)
      .map((name) => [prefix + name, String(state[name])]);
    return pairs.concat([[prefix + "best", state.best ? "1" : "0"], [prefix + "scheme", state.scheme]]);
  }
  // the plan, and the one kept next to it, as the part of an address after #
  const toHash = (state, kept) => new URLSearchParams(
    written(state, "").concat(kept ? written(kept, "kept.") : [])).toString();

  function read(fields, prefix, from, schemes) {
    const out = Object.assign({}, from);
    for (const name of NUMBERS) {
      const value = fields.has(prefix + name) ? Number(fields.get(prefix + name)) : null;
      if (value !== null && !isNaN(value) && allowed(name, value)) { out[name] = value; }
    }
    if (fields.has(prefix + "best")) { out.best = fields.get(prefix + "best") === "1"; }
    if (schemes.includes(fields.get(prefix + "scheme"))) { out.scheme = fields.get(prefix + "scheme"); }
    return out;
  }
  // the states of an address; what it does not say, or says wrongly, is that of `from`
  function fromHash(hash, from, schemes) {
    const fields = new URLSearchParams(hash.replace(/^#/, ""));
    return { state: read(fields, "", from, schemes),
      kept: fields.has("kept.gpus") ? read(fields, "kept.", from, schemes) : null };
  }

  return { spell, parsed, allowed, toHash, fromHash };
})();
