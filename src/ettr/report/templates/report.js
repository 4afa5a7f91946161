"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const narrow = () => window.innerWidth < 600;
  // a sheet of A4 or Letter between its margins: the width of the screen says nothing about it
  const sheet = { width: 680, height: 190, tallest: 330 };
  let printing = false;

  // colours that stay apart for colour-blind readers, on white and on black alike
  const colours = ["#3b82c4", "#e08214", "#2fa37c", "#c95fa0", "#8a7fd1", "#b8a12c", "#d1495b",
    "#5fb3d9", "#8c6d46", "#7f8a97", "#4f9d3a", "#a34e24"];

  // a figure that is taller than a sheet would be cut in two
  function printedHeight(layout) { return Math.min(layout.height || sheet.height, sheet.tallest); }

  function themed(layout) {
    const ink = style("--ink"), line = style("--line");
    const out = Object.assign({ colorway: colours, hovermode: "closest", barmode: "group" }, layout);
    out.paper_bgcolor = "rgba(0,0,0,0)";
    out.plot_bgcolor = "rgba(0,0,0,0)";
    out.font = { color: ink, size: printing ? 10 : narrow() ? 11 : 12, family: "system-ui, 'DejaVu Sans', sans-serif" };
    out.margin = Object.assign({ l: narrow() ? 48 : 64, r: 12, t: 12, b: 48 }, layout.margin || {});
    out.hoverlabel = { bgcolor: style("--panel"), bordercolor: line, font: { color: ink } };
    // above the figure, where no tick or title of an axis can meet it
    out.legend = Object.assign({ orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, layout.legend || {});
    for (const key of Object.keys(layout).concat(["xaxis", "yaxis"])) {
      if (/^[xy]axis/.test(key)) {
        out[key] = Object.assign({ gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true },
          layout[key] || {});
      }
    }
    if (printing) { Object.assign(out, { width: sheet.width, height: printedHeight(layout) }); }
    return out;
  }

  // error bars take the colour of the soft ink: Plotly's own grey is lost on black
  function inked(trace) {
    const out = Object.assign({}, trace);
    if (out.line && out.line.color === "ink") { out.line = Object.assign({}, out.line, { color: style("--ink") }); }
    for (const bar of ["error_x", "error_y"]) {
      if (out[bar]) { out[bar] = Object.assign({ color: style("--soft") }, out[bar]); }
    }
    return out;
  }

  function drawOne(figure) {
    const place = document.getElementById("figure-" + figure.slug);
    const height = printing ? printedHeight(figure.layout) : figure.layout.height || 0;
    place.style.height = height ? height + "px" : "";
    Plotly.react(place, figure.data.map(inked), themed(figure.layout),
      { responsive: true, displaylogo: false, displayModeBar: "hover",
        modeBarButtonsToRemove: ["lasso2d", "select2d"] });
  }

  function draw() {
    if (!window.Plotly && figures.length) { return; }
    figures.forEach(drawOne);
    root.dataset.drawn = String(figures.length);
  }

  // one figure at a time while nobody waits: the answers above them can be read and used at once
  const idle = window.requestIdleCallback || ((next) => setTimeout(next, 0));
  function drawLater(place) {
    if (root.dataset.drawn) { return; }
    if (place === figures.length) { root.dataset.drawn = String(place); return; }
    drawOne(figures[place]);
    idle(() => drawLater(place + 1));
  }

  document.getElementById("theme").addEventListener("click", function () {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : window.matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    draw();
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // paper is white: figures take their ink from the light theme while the page is printed
  let onScreen, closed = [];
  window.addEventListener("beforeprint", function () {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const part of closed) { part.open = true; }
    onScreen = root.dataset.theme;
    root.dataset.theme = "light";
    printing = true;
    draw();
  });
  window.addEventListener("afterprint", function () {
    for (const part of closed) { part.open = false; }
    if (onScreen) { root.dataset.theme = onScreen; } else { delete root.dataset.theme; }
    printing = false;
    draw();
  });
  // a link into what is folded unfolds it; one with words filters the table that it leads to
  document.addEventListener("click", function (event) {
    const link = event.target.closest("a[href^='#']");
    const place = link && document.getElementById(link.getAttribute("href").slice(1));
    if (!place) { return; }
    for (let part = place; part; part = part.parentElement) { if (part.tagName === "DETAILS") { part.open = true; } }
    const quiet = place.querySelector(":scope > details.quiet");
    if (quiet) { quiet.open = true; }
    const words = link.dataset.filter, input = place.querySelector(".controls input");
    if (words !== undefined && input) { input.value = words; input.dispatchEvent(new Event("input")); }
  });
  // the filter over the page: sections without the words go, and so do the other rows
  const filter = document.getElementById("filter");
  if (filter) {
    filter.addEventListener("input", function () {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      const has = (text) => words.every((word) => text.toLowerCase().includes(word));
      for (const section of document.querySelectorAll("main > section[id]")) {
        for (const input of section.querySelectorAll(".controls input")) {
          input.value = filter.value;
          input.dispatchEvent(new Event("input"));
        }
        const rows = [...section.querySelectorAll("tbody tr")];
        const found = rows.filter((row) => has(row.textContent));
        const prose = has([...section.querySelectorAll("h2, .lead, .notes, .rest, .count")]
          .map((one) => one.textContent).join(" "));
        for (const row of rows) { row.hidden = words.length > 0 && found.length > 0 && !found.includes(row); }
        section.hidden = words.length > 0 && !prose && !found.length;
      }
    });
  }
  // the library of the charts lies compressed in the page
  async function unpack() {
    const bytes = Uint8Array.from(atob(document.getElementById("library").textContent), (c) => c.charCodeAt(0));
    const text = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(text).text();
    document.head.append(script);
  }
  if (figures.length) { idle(() => unpack().then(() => drawLater(0))); } else { drawLater(0); }
})();
