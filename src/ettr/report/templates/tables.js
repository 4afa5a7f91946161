"use strict";
// Tables shown page by page: sorted by a click on a head, filtered by words. Cells are text only.
(function () {
  const PAGE = 25;
  const all = JSON.parse(document.getElementById("tables").textContent);

  function value(text) {
    // a bound such as "< 1e-6" sorts as the number that it names
    const number = Number(text.replace(/,/g, "").replace(/^[<>≤≥] /, ""));
    return text === "" || Number.isNaN(number) ? null : number;
  }

  function element(name, text, attributes) {
    const made = document.createElement(name);
    if (text) { made.textContent = text; }
    for (const key of Object.keys(attributes || {})) { made.setAttribute(key, attributes[key]); }
    return made;
  }

  function paged(data) {
    const place = document.getElementById("table-" + data.slug);
    const body = place.querySelector("tbody"), heads = [...place.querySelectorAll("th")];
    const numeric = new Set(data.numeric);
    const words = data.rows.map((row) => row.join("\n").toLowerCase());
    const keys = {};
    // a node leads to its failures or to its row, a job to its failures
    const links = heads.map((head) => ({ node: data.slug === "nodes" ? "failures" : "nodes", job: "failures" })[head.textContent])
      .map((slug) => slug !== data.slug && document.getElementById("table-" + slug) ? slug : "");
    let order = data.rows.map((_, i) => i), shown = order, page = 0, by = -1, falling = false;

    const controls = element("div", "", { class: "controls" });
    const filter = element("input", "", { type: "search", placeholder: "filter: words in any column",
      "aria-label": "Filter " + data.title });
    const back = element("button", "‹ earlier", { type: "button" });
    const count = element("span", "", { class: "count", role: "status" });
    const on = element("button", "further ›", { type: "button" });
    controls.append(filter, back, count, on);
    place.querySelector(".scroll").before(controls);

    function draw() {
      const last = Math.max(0, Math.ceil(shown.length / PAGE) - 1);
      page = Math.min(Math.max(page, 0), last);
      const some = shown.slice(page * PAGE, (page + 1) * PAGE);
      body.replaceChildren(...some.map((i) => {
        const line = document.createElement("tr");
        data.rows[i].forEach((text, column) => line.append(cell(text, column, numeric)));
        return line;
      }));
      const first = shown.length ? page * PAGE + 1 : 0;
      count.textContent = first.toLocaleString("en") + " to " + (page * PAGE + some.length).toLocaleString("en")
        + " of " + shown.length.toLocaleString("en")
        + (shown.length < data.rows.length ? " (" + data.rows.length.toLocaleString("en") + " in all)" : "");
      back.disabled = page === 0;
      on.disabled = page === last;
    }

    function narrowed() {
      const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      shown = wanted.length ? order.filter((i) => wanted.every((word) => words[i].includes(word))) : order;
      page = 0;
      draw();
    }

    function sorted(column) {
      falling = by === column ? !falling : numeric.has(column);
      by = column;
      keys[column] = keys[column]
        || data.rows.map((row) => numeric.has(column) ? value(row[column]) : row[column].toLowerCase());
      const key = keys[column], sign = falling ? -1 : 1;
      // what is not known comes last in either direction, equals keep the order of the logs
      order = data.rows.map((_, i) => i).sort((a, b) => {
        const x = key[a], y = key[b];
        if (x === y) { return a - b; }
        if (x === null) { return 1; }
        if (y === null) { return -1; }
        return x < y ? -sign : sign;
      });
      heads.forEach((head, i) =>
        head.setAttribute("aria-sort", i === by ? (falling ? "descending" : "ascending") : "none"));
      narrowed();
    }

    function cell(text, column, numeric) {
      const made = element("td", numeric.has(column) || links[column] ? "" : text,
        numeric.has(column) ? { class: "n" } : {});
      if (!links[column]) { made.textContent = text; return made; }
      made.append(element("a", text, { href: "#table-" + links[column], "data-filter": text.split(" ")[0] }));
      return made;
    }

    heads.forEach((head, column) => {
      const button = element("button", head.textContent, { type: "button" });
      button.addEventListener("click", () => sorted(column));
      head.replaceChildren(button);
      head.setAttribute("aria-sort", "none");
    });
    filter.addEventListener("input", narrowed);
    back.addEventListener("click", () => { page -= 1; draw(); });
    on.addEventListener("click", () => { page += 1; draw(); });
    draw();
  }

  for (const data of all) { paged(data); }
  document.documentElement.dataset.tables = String(all.length);
})();
