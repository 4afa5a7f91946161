"use strict";
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const narrow = () => window.innerWidth < 600;
  // a sheet of A4 or Letter between its margins: the width of the screen says nothing about it
  const sheet = { width: 680, height: 300, tallest: 760 };
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

  function draw() {
    for (const figure of figures) {
      const place = document.getElementById("figure-" + figure.slug);
      const height = printing ? printedHeight(figure.layout) : figure.layout.height || 0;
      place.style.height = height ? height + "px" : "";
      Plotly.react(place, figure.data.map(inked), themed(figure.layout),
        { responsive: true, displaylogo: false, displayModeBar: "hover",
          modeBarButtonsToRemove: ["lasso2d", "select2d"] });
    }
    root.dataset.drawn = String(figures.length);
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
  let onScreen;
  window.addEventListener("beforeprint", function () {
    for (const table of document.querySelectorAll("details")) { table.open = true; }
    onScreen = root.dataset.theme;
    root.dataset.theme = "light";
    printing = true;
    draw();
  });
  window.addEventListener("afterprint", function () {
    if (onScreen) { root.dataset.theme = onScreen; } else { delete root.dataset.theme; }
    printing = false;
    draw();
  });
  draw();
})();
