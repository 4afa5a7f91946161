(function () {
  const given = JSON.parse(document.getElementById("given").textContent);
  const root = document.documentElement, byId = (id) => document.getElementById(id);
  const DAY = 86400, canvas = byId("contour");
  // name, words, lowest, highest, may be 0
  const SLIDERS = [
    ["gpus", "GPUs", 8, 262144, false], ["per_1000", "failures per 1,000 node-days", 0.05, 100, false],
    ["interval_s", "checkpoint interval", 1, DAY, false], ["write_s", "write time", 0.1, 3600, true],
    ["restart_s", "restart time", 1, 7200, true], ["queue_s", "queue time", 1, DAY, true],
  ];
  // where a run was simulated, the sliders reach as far as the simulations do
  if (given.around) {
    for (const slider of SLIDERS.slice(0, 2)) {
      const own = given.state[slider[0]], ends = [given.factors[0], given.factors[given.factors.length - 1]];
      [slider[2], slider[3]] = ends.map((factor) => factor * own);
    }
    SLIDERS[0][2] = Math.max(given.gpus_per_node, SLIDERS[0][2]);
  }
  const STEPS = 1000;
  let state, kept = null;

  const spell = planState.spell;
  const written = (name, value) => name === "gpus" ? Math.round(value).toLocaleString("en")
    : name === "per_1000" ? String(+value.toPrecision(3)) : spell(value);
  const scheme = (s) => given.schemes.find((one) => one.name === s.scheme) || null;
  const nodes = (s) => Math.max(1, Math.ceil(s.gpus / given.gpus_per_node - 1e-9));
  const rate = (s) => s.per_1000 / 1000 * nodes(s) / DAY;
  const inner = (s) => ({ nodes: nodes(s), rate: rate(s), restart: s.restart_s, queue: s.queue_s });

  function bestInterval(s) {
    const one = scheme(s);
    if (one) { return forms.schemeBest(one, inner(s)); }
    return s.write_s > 0 && rate(s) > 0 ? forms.optimalShare(rate(s) * s.write_s) / rate(s) : 0;
  }
  // place between simulated factors on a scale of logarithms: the lower one, and the share beyond it
  function between(factor) {
    const all = given.factors;
    const at = Math.min(Math.max(factor, all[0]), all[all.length - 1]);
    const i = Math.min(all.length - 2, Math.max(0, all.findIndex((one) => one > at) - 1 + (at >= all[all.length - 1] ? all.length : 0)));
    return [i, Math.log(at / all[i]) / Math.log(all[i + 1] / all[i])];
  }
  // simulated ETTR over that of the exact form
  function simulatedShare(s) {
    if (!given.around) { return 1; }
    const [i, x] = between(s.gpus / given.state.gpus), [j, y] = between(s.per_1000 / given.state.per_1000);
    const row = (k) => given.around[k][i] * (1 - x) + given.around[k][i + 1] * x;
    return row(j) * (1 - y) + row(j + 1) * y;
  }
  function ettrAt(s, interval) { return simulatedShare(s) * exactAt(s, interval); }
  function exactAt(s, interval) {
    const one = scheme(s);
    return one ? forms.levels(forms.schemeLevels(one, inner(s), interval))
      : forms.longRun(rate(s), interval, s.write_s, s.restart_s + given.load_s, s.queue_s);
  }
  const interval = (s) => s.best ? bestInterval(s) || s.interval_s : s.interval_s;
  const ettr = (s) => ettrAt(s, interval(s));

  // the highest value of an input that still reaches the target; null if none. The interval is held,
  // or follows to its best where the page keeps it there (at 0 itself there may be no best).
  function atMost(s, name) {
    const held = interval(s), at = (value) => {
      const moved = Object.assign({}, s, { [name]: value });
      return ettrAt(moved, s.best ? interval(moved) : held);
    };
    let good = s.best ? s[name] * 1e-9 : 0;
    if (at(good) < s.target) { return null; }
    let bad = Math.max(2 * s[name], 1e-6);
    while (at(bad) >= s.target) { bad *= 2; if (bad > 1e12) { return Infinity; } }
    for (let i = 0; i < 80; i++) {
      const middle = (good + bad) / 2;
      if (at(middle) >= s.target) { good = middle; } else { bad = middle; }
    }
    return good;
  }

  function put(id, text, value, detail) {
    byId(id).textContent = text;
    if (value !== undefined) { byId(id).dataset.value = String(value); }
    if (detail !== undefined) { byId(id + "-detail").textContent = detail; }
  }

  function showNumbers() {
    const now = ettr(state), dt = interval(state), lambda = rate(state), best = bestInterval(state);
    const band = given.band && Math.abs(state.per_1000 / given.state.per_1000 - 1) < 1e-9
      ? [given.band.high_per_1000, given.band.low_per_1000].map((r) =>
        ettrAt(Object.assign({}, state, { per_1000: r }), dt).toFixed(3)) : null;
    put("mttf", spell(1 / lambda), 1 / lambda, nodes(state).toLocaleString("en") + " nodes of " + given.gpus_per_node + " GPUs");
    const paper = scheme(state) ? null : forms.paper(lambda, dt, state.write_s, state.restart_s + given.load_s);
    const detail = scheme(state) ? "with " + state.scheme
      : paper === null ? "the paper's form has no value here" : "the paper's form: " + paper.toFixed(4);
    put("ettr", now.toFixed(4), now, (band ? "[" + band[0] + ", " + band[1] + "]; " : "") + detail);
    byId("ettr-detail").dataset.value = paper === null ? "" : String(paper);
    if (best > 0) {
      put("optimum", spell(best), best, "ETTR " + ettrAt(state, best).toFixed(4) + " there");
    } else { put("optimum", "the shorter the better", 0, "since writes cost nothing"); }
    const gap = now - state.target;
    if (given.simulated && !given.around) {
      put("target-state", "see the simulation", undefined, "the exact form does not decide it here");
    } else {
      put("target-state", gap >= 0 ? "reached" : "missed", gap,
        (gap >= 0 ? "by " : "short by ") + Math.abs(gap).toFixed(4) + " of " + state.target.toFixed(3));
    }
    showCost();
    const rows = [["per_1000", "failures per 1,000 node-days"], ["write_s", "write time"], ["restart_s", "restart time"], ["queue_s", "queue time"]];
    byId("needs").replaceChildren(...rows.filter(([name]) => name !== "write_s" || !scheme(state)).map(([name, words]) => {
      const most = atMost(state, name), row = document.createElement("tr");
      const needed = most === null ? "not enough alone" : held(name, most) < most ? "more than " + written(name, held(name, most))
        : most === Infinity ? "any" : written(name, most);
      for (const [text, number] of [[words, false], [written(name, state[name]), true], [needed, true]]) {
        const cell = document.createElement("td");
        cell.textContent = text;
        if (number) { cell.className = "n"; }
        row.append(cell);
      }
      row.dataset.name = name;
      row.dataset.value = most === null ? "" : String(most);
      return row;
    }));
  }

  // wall clock, GPU-hours and money of a plan in the long run; null where they cannot be known
  function cost(s) {
    const share = ettr(s);
    if (!(share > 0) || forbidden(s)) { return { ettr: share, days: null, held: null, lost: null }; }
    const days = s.days / share, gpus = nodes(s) * given.gpus_per_node;
    // how often a scheme waits in the queue depends on the kind of failure
    const held = scheme(s) && s.queue_s > 0 ? null : gpus * 24 * days * (scheme(s) ? 1 : forms.heldShare(rate(s), s.queue_s));
    return { ettr: share, days, held, lost: held === null ? null : held - gpus * 24 * s.days };
  }
  const count = (value) => value === null ? "–" : Math.round(value).toLocaleString("en");
  const money = (hours, s) => hours === null || s.price === null ? "–"
    : count(hours * s.price) + (given.currency ? " " + given.currency : "");

  function showCost() {
    const plans = kept ? [state, kept] : [state], costs = plans.map(cost);
    const rows = [
      ["scheme", plans.map((s) => s.scheme)],
      ["GPUs", plans.map((s) => count(s.gpus))],
      ["failures per 1,000 node-days", plans.map((s) => written("per_1000", s.per_1000))],
      ["checkpoint every", plans.map((s) => spell(interval(s)))],
      ["write, restart, queue", plans.map((s) => [s.write_s, s.restart_s, s.queue_s].map(spell).join(", "))],
      ["MTTF", plans.map((s) => spell(1 / rate(s)))],
      [given.around ? "ETTR, simulated" : given.simulated ? "ETTR, exact form" : "ETTR", costs.map((one) => one.ettr.toFixed(4))],
      ["productive days", plans.map((s) => String(s.days))],
      ["wall-clock days", costs.map((one) => one.days === null ? "–" : one.days.toFixed(2))],
      ["GPU-hours", costs.map((one) => count(one.held))],
      ["of them lost", costs.map((one) => count(one.lost))],
      ["money", costs.map((one, i) => money(one.held, plans[i]))],
      ["of it lost", costs.map((one, i) => money(one.lost, plans[i]))],
    ];
    byId("cost-head").replaceChildren(...["quantity", "this plan"].concat(kept ? ["plan kept"] : []).map((text, i) => cellOf("th", text, i > 0)));
    byId("cost").replaceChildren(...rows.map(([name, values]) => {
      const row = document.createElement("tr");
      row.dataset.name = name;
      row.append(cellOf("td", name, false), ...values.map((text) => cellOf("td", text, true)));
      return row;
    }));
    byId("cost").dataset.days = costs.map((one) => one.days).join(" ");
    byId("cost").dataset.held = costs.map((one) => one.held).join(" ");
  }
  function cellOf(kind, text, number) {
    const cell = document.createElement(kind);
    cell.textContent = text;
    if (kind === "th") { cell.scope = "col"; }
    if (number) { cell.className = "n"; }
    return cell;
  }

  const mix = (a, b, t) => a.map((v, i) => Math.round(v + (b[i] - v) * t));
  const RAMP = [[68, 20, 90], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  function colour(value) {
    // most of what matters lies near 1
    const t = Math.min(0.9999, Math.pow(Math.max(0, value), 1.6)) * (RAMP.length - 1), i = Math.floor(t);
    return "rgb(" + mix(RAMP[i], RAMP[i + 1], t - i).join(",") + ")";
  }

  function showContour() {
    const ink = getComputedStyle(root).getPropertyValue("--ink").trim();
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const [, , xLow, xHigh] = SLIDERS[0];
    const name = byId("axis").value, [, words, yLow, yHigh] = SLIDERS.find(([one]) => one === name);
    const left = 58, right = width - 10, top = 8, bottom = height - 40;
    const place = (v, low, high, from, to) => from + (to - from) * Math.log(v / low) / Math.log(high / low);
    const px = (v) => place(v, xLow, xHigh, left, right), py = (v) => place(v, yLow, yHigh, bottom, top);
    const slow = name !== "interval_s" && state.best && scheme(state);
    const nx = slow ? 45 : 90, ny = slow ? 30 : 60;
    const xs = Array.from({ length: nx + 1 }, (_, i) => xLow * Math.pow(xHigh / xLow, i / nx));
    const ys = Array.from({ length: ny + 1 }, (_, i) => yLow * Math.pow(yHigh / yLow, i / ny));
    const at = (x, y) => {
      const s = Object.assign({}, state, { gpus: x, [name]: y });
      return name === "interval_s" ? ettrAt(s, y) : ettr(s);
    };
    const z = ys.map((y) => xs.map((x) => at(x, y)));
    for (let j = 0; j < ny; j++) {
      for (let i = 0; i < nx; i++) {
        pen.fillStyle = colour((z[j][i] + z[j][i + 1] + z[j + 1][i] + z[j + 1][i + 1]) / 4);
        const x = px(xs[i]), y = py(ys[j + 1]);
        pen.fillRect(x, y, px(xs[i + 1]) - x + 0.6, py(ys[j]) - y + 0.6);
      }
    }
    const line = (level, style, wide) => {
      pen.strokeStyle = style;
      pen.lineWidth = wide;
      pen.beginPath();
      for (let j = 0; j < ny; j++) {
        for (let i = 0; i < nx; i++) {
          const cross = [];
          const edge = (a, b, x0, y0, x1, y1) => {
            if ((a >= level) !== (b >= level)) {
              const t = (level - a) / (b - a);
              cross.push([x0 + (x1 - x0) * t, y0 + (y1 - y0) * t]);
            }
          };
          const x0 = px(xs[i]), x1 = px(xs[i + 1]), y0 = py(ys[j]), y1 = py(ys[j + 1]);
          edge(z[j][i], z[j][i + 1], x0, y0, x1, y0);
          edge(z[j][i + 1], z[j + 1][i + 1], x1, y0, x1, y1);
          edge(z[j + 1][i + 1], z[j + 1][i], x1, y1, x0, y1);
          edge(z[j + 1][i], z[j][i], x0, y1, x0, y0);
          for (let k = 0; k + 1 < cross.length; k += 2) {
            pen.moveTo(...cross[k]);
            pen.lineTo(...cross[k + 1]);
          }
        }
      }
      pen.stroke();
    };
    pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    for (const level of [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95]) {
      line(level, "rgba(255,255,255,.55)", 1);
      // a number where the line crosses the first of a few columns
      if (Math.abs(level - state.target) < 0.02) { continue; }
      const columns = [0.06, 0.3, 0.6, 0.85].map((share) => Math.round(share * nx));
      for (const i of columns) {
        const j = z.findIndex((row, k) => k > 0 && (row[i] >= level) !== (z[k - 1][i] >= level));
        if (j > 0) {
          pen.fillStyle = "rgba(0,0,0,.55)";
          pen.fillRect(px(xs[i]) - 15, py(ys[j]) - 7, 30, 14);
          pen.fillStyle = "#fff";
          pen.fillText(level.toFixed(2), px(xs[i]), py(ys[j]) + 4);
          break;
        }
      }
    }
    line(state.target, "#000", 5);
    line(state.target, "#fff", 2.5);
    pen.save();
    pen.beginPath();
    pen.rect(left, top, right - left, bottom - top);
    pen.clip();
    if (name === "interval_s") {
      pen.setLineDash([7, 5]);
      for (const [style, wide] of [["#000", 4], ["#fff", 2]]) {
        pen.strokeStyle = style;
        pen.lineWidth = wide;
        pen.beginPath();
        xs.filter((_, i) => i % 3 === 0).forEach((x, i) => {
          const best = bestInterval(Object.assign({}, state, { gpus: x }));
          if (best > 0) { i ? pen.lineTo(px(x), py(best)) : pen.moveTo(px(x), py(best)); }
        });
        pen.stroke();
      }
      pen.setLineDash([]);
    }
    pen.fillStyle = "#d1495b";
    pen.strokeStyle = "#fff";
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(px(state.gpus), py(name === "interval_s" ? interval(state) : state[name]), 7, 0, 7);
    pen.fill();
    pen.stroke();
    pen.restore();
    pen.fillStyle = ink;
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textAlign = "center";
    const every = width < 500 ? 16 : 4;
    for (let x = xLow; x <= xHigh; x *= every) {
      const text = x >= 1024 ? x / 1024 + "k" : String(x);
      pen.fillText(text, Math.min(Math.max(px(x), left + 4), right - 12), bottom + 16);
    }
    pen.fillText("GPUs (k = 1,024)", (left + right) / 2, bottom + 33);
    pen.textAlign = "right";
    const all = name === "interval_s" ? [1, 10, 60, 600, 3600, 21600, DAY] : [0.1, 1, 10, 100];
    const inside = all.filter((y) => y >= yLow && y <= yHigh), ticks = inside.length > 1 ? inside : [yLow, yHigh];
    for (const y of ticks) { pen.fillText(written(name, y), left - 6, Math.max(py(y) + 4, top + 9)); }
    canvas.setAttribute("aria-label", "ETTR over GPUs and " + words + "; " + byId("ettr").textContent + " at this run");
  }

  // why the scheme cannot be used at this size; null where it can, or none is chosen
  function forbidden(s) {
    const one = scheme(s);
    return one && forms.obstacle(one, inner(s), given.host_bytes);
  }
  const obstacle = () => forbidden(state);

  function showScheme() {
    const one = scheme(state), why = obstacle();
    byId("slider-write_s").disabled = Boolean(one);
    byId("scheme-note").textContent = why ? "Cannot be used: " + why + "."
      : one ? one.why : "Training stops for the write time at every checkpoint.";
    if (why) { put("target-state", "no", undefined, "the scheme cannot be used here"); }
  }

  function show() {
    for (const [name] of SLIDERS) {
      const value = name === "interval_s" ? interval(state) : state[name];
      field(name).value = written(name, value);
      field(name).removeAttribute("aria-invalid");
      if (name === "interval_s" && state.best) { byId("slider-interval_s").value = position(name, value); }
    }
    for (const name of ["target", "days", "price"]) {
      field(name).value = state[name] === null ? "" : String(state[name]);
      field(name).removeAttribute("aria-invalid");
    }
    showNumbers();
    showScheme();
    showContour();
    const address = "#" + planState.toHash(state, kept);
    if (address !== location.hash) { history.replaceState(null, "", address); }
    byId("drop").hidden = kept === null;
    root.dataset.shown = String(Number(root.dataset.shown || 0) + 1);
  }

  // logarithmic, with 0 at the left end where it may be
  function position(name, value) {
    const [, , low, high, zero] = SLIDERS.find(([one]) => one === name);
    if (zero && value < low) { return 0; }
    const share = Math.log(Math.min(Math.max(value, low), high) / low) / Math.log(high / low);
    return zero ? 1 + share * (STEPS - 1) : share * STEPS;
  }
  function value(name, at) {
    const [, , low, high, zero] = SLIDERS.find(([one]) => one === name);
    if (zero && at < 0.5) { return 0; }
    const raw = low * Math.pow(high / low, zero ? (at - 1) / (STEPS - 1) : at / STEPS);
    if (name === "gpus") { return Math.max(given.gpus_per_node, Math.round(raw / given.gpus_per_node) * given.gpus_per_node); }
    return Number(raw.toPrecision(3));
  }

  // beyond what was simulated around the run nothing is known
  function held(name, value) {
    const [, , low, high] = SLIDERS.find(([one]) => one === name) || [];
    return given.around && (name === "gpus" || name === "per_1000") ? Math.min(Math.max(value, low), high) : value;
  }
  const field = (name) => byId("field-" + name);
  // a field takes the exact value that a slider has no step for
  function input(name, words, unit) {
    const label = document.createElement("label"), text = document.createElement("span");
    const box = document.createElement("input");
    label.className = "slider";
    text.textContent = words;
    Object.assign(box, { id: "field-" + name, type: "text", inputMode: "decimal", autocomplete: "off", placeholder: unit || "" });
    box.setAttribute("aria-label", words);
    box.addEventListener("change", function () {
      const value = name === "price" && !box.value.trim() ? null : planState.parsed(name, box.value);
      if (value !== null ? !planState.allowed(name, value) || held(name, value) !== value : name !== "price" || box.value.trim()) {
        box.setAttribute("aria-invalid", "true");
        return;
      }
      if (name === "interval_s") { state.best = byId("best").checked = false; }
      start(Object.assign({}, state, { [name]: name === "gpus" ? Math.round(value) : value }), kept);
    });
    label.append(text, box);
    byId("sliders").append(label);
    return label;
  }
  function slider(name, words, min, max, step) {
    const label = input(name, words), range = document.createElement("input");
    Object.assign(range, { id: "slider-" + name, type: "range", min, max, step });
    range.setAttribute("aria-label", words);
    label.append(range);
    return range;
  }
  for (const [name, words] of SLIDERS) {
    slider(name, words, 0, STEPS, "any").addEventListener("input", function (event) {
      if (name === "interval_s") { state.best = byId("best").checked = false; }
      state[name] = value(name, Number(event.target.value));
      show();
    });
  }
  slider("target", "target ETTR", 0.3, 0.995, 0.005).addEventListener("input", function (event) {
    state.target = Number(event.target.value);
    show();
  });
  input("days", "productive days", "days");
  input("price", "price of a GPU-hour" + (given.currency ? ", " + given.currency : ""), "none");
  byId("best").addEventListener("change", function () {
    state.interval_s = interval(state);
    state.best = byId("best").checked;
    show();
  });
  for (const name of ["typed write time", ...given.schemes.map((one) => one.name)]) {
    byId("scheme").append(new Option(name, name));
  }
  byId("scheme").addEventListener("change", function () {
    state.scheme = byId("scheme").value;
    show();
  });
  byId("axis").addEventListener("change", show);

  function start(from, next) {
    [state, kept] = [from, next].map((one) => one
      ? Object.assign({}, one, { gpus: held("gpus", one.gpus), per_1000: held("per_1000", one.per_1000) }) : null);
    for (const [name] of SLIDERS) { byId("slider-" + name).value = position(name, state[name]); }
    byId("slider-target").value = state.target;
    byId("best").checked = state.best;
    byId("scheme").value = state.scheme;
    show();
  }
  byId("reset").addEventListener("click", () => start(given.state));
  byId("keep").addEventListener("click", () => start(state, Object.assign({}, state)));
  byId("drop").addEventListener("click", () => start(state));
  byId("theme").addEventListener("click", function () {
    const dark = root.dataset.theme ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    showContour();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showContour);
  window.addEventListener("resize", showContour);
  // exact values may be set from outside, as a slider has steps
  root.addEventListener("plan", (event) => start(Object.assign({}, given.state, event.detail)));
  const names = ["typed write time", ...given.schemes.map((one) => one.name)];
  function follow() {
    const there = planState.fromHash(location.hash, given.state, names);
    start(there.state, there.kept);
  }
  window.addEventListener("hashchange", follow);
  follow();
})();
