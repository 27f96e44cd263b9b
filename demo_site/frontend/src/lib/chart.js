// Charts in the site's colours, with uPlot. Screen readers get the caption and the page's own figures, not the canvas.
import uPlot from "uplot";
import { color, everyFrame } from "./dom.js";

const FONT = '12px Archivo, system-ui, sans-serif';
const colors = new Map();
addEventListener("themechange", () => colors.clear());

function themed(name) {
  if (!colors.has(name)) colors.set(name, color(name));
  return colors.get(name);
}

/** A number as people write it in a chart: 0.0123, 4.2, 1,200, 1.0e+38. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e9)) return value.toExponential(1);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** What a scale shows before there are data. */
const EMPTY = { x: [0, 100], linear: [0, 1], log: [0.01, 10] };

const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5];

function scale({ log, range }) {
  const fitted = (_, low, high) => {
    if (low === null) return log ? EMPTY.log : EMPTY.linear;
    return log ? uPlot.rangeLog(low, high, 10, false) : uPlot.rangeNum(low, high, 0.1, true);
  };
  return { distr: log ? 3 : 1, auto: true, range: range ?? fitted };
}

function axis(options) {
  return {
    stroke: () => themed("ink-soft"),
    grid: { stroke: () => themed("line"), width: 1 },
    ticks: { show: false },
    font: FONT,
    labelFont: FONT,
    labelSize: 18,
    gap: 6,
    ...options,
  };
}

/** A plot of uPlot's options that fits its container, redraws with the theme, and is destroyed with `destroy`. */
function mount(container, options, data, height) {
  const size = () => ({ width: Math.max(container.clientWidth, 120), height });
  const plot = new uPlot({ ...size(), ...options }, data, container);
  for (const canvas of container.querySelectorAll("canvas")) canvas.setAttribute("aria-hidden", "true");
  const observer = new ResizeObserver(everyFrame(() => plot.setSize(size())));
  observer.observe(container);
  const redraw = () => {
    plot.redraw(false);
    container.querySelectorAll(".u-legend .u-series").forEach((row, number) => {
      const stroke = number > 0 && plot.series[number].stroke(plot, number);
      if (stroke) row.querySelector(".u-marker").style.borderColor = stroke;
    });
  };
  addEventListener("themechange", redraw);
  return {
    plot,
    destroy() {
      observer.disconnect();
      removeEventListener("themechange", redraw);
      plot.destroy();
    },
  };
}

/**
 * A line chart that grows.
 *
 *   const chart = lineChart(container, {
 *     x: "step",               // counted, unless `whole` is false
 *     series: [{ label: "loss", scale: "y", color: "series-1" }, { label: "accuracy", scale: "%", points: true }],
 *     scales: { y: { log: true, label: "cross-entropy" }, "%": { range: [0, 100], side: "right", label: "%" } },
 *     height: 260,
 *   });
 *   // a logarithmic scale with `lowest` draws smaller values there; the legend has the values themselves
 *   chart.push(step, { loss: 0.7 });                  // lines bridge what is missing; a second push at the same x adds
 *   chart.set([[x…], [y…], …]); chart.clear(); chart.destroy();
 */
export function lineChart(container, { x = "step", whole = true, series, scales = { y: {} }, height = 260, legend = true }) {
  const data = [[], ...series.map(() => [])];
  const lowest = series.map(({ scale = Object.keys(scales)[0] }) => scales[scale].lowest ?? -Infinity);
  const drawn = () => data.map((column, number) =>
    (number && lowest[number - 1] > -Infinity ? column.map((value) => (value === null ? null : Math.max(value, lowest[number - 1]))) : column));
  const sides = Object.entries(scales);
  const options = {
    legend: { show: legend },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    scales: {
      x: { time: false, range: (_, low, high) => (low === null || low === high ? EMPTY.x : [Math.min(low, 0), high]) },
      ...Object.fromEntries(sides.map(([name, options]) => [name, scale(options)])),
    },
    axes: [
      axis({ label: x, size: 30, values: (_, splits) => splits.map(short), ...(whole ? { incrs: WHOLE } : {}) }),
      ...sides.map(([name, { label, side, log }], number) =>
        axis({
          scale: name,
          label,
          side: side === "right" ? 1 : 3,
          size: 46,
          grid: { show: number === 0, stroke: () => themed("line"), width: 1, ...(log ? { filter: onLogGrid } : {}) },
          values: (_, splits) => splits.map((one) => (one === null ? "" : short(one))),
          ...(log ? { filter: onLogGrid } : {}),
        }),
      ),
    ],
    series: [
      { label: x, value: (_, value) => short(value) },
      ...series.map(({ label, scale = sides[0][0], color: name, points = false, width = 2, dash }, number) => ({
        label,
        scale,
        width,
        dash,
        spanGaps: true,
        stroke: () => themed(name ?? `series-${(number % 10) + 1}`),
        points: { show: points, size: 5 },
        value: (_, value, row, at) => short(at == null ? value : data[row][at]),
      })),
    ],
  };
  const { plot, destroy } = mount(container, options, drawn(), height);
  const draw = everyFrame(() => {
    plot.setData(drawn());
    const last = data.map((column) => column.findLastIndex((value) => value !== null));
    // Away from the chart, the legend has the latest figures.
    if (plot.cursor.left < 0 && last[0] >= 0) plot.setLegend({ idxs: last }, false);
  });
  return {
    plot,
    destroy,
    push(at, values) {
      const isNew = data[0].at(-1) !== at;
      if (isNew) data.forEach((column) => column.push(null));
      data[0][data[0].length - 1] = at;
      series.forEach(({ label }, number) => {
        if (label in values) data[number + 1][data[0].length - 1] = values[label];
      });
      draw();
    },
    set(columns) {
      columns.forEach((column, number) => data[number].splice(0, Infinity, ...column));
      draw();
    },
    clear() {
      for (const column of data) column.length = 0;
      draw();
    },
  };
}

/** Of the places that uPlot proposes, 1, 2 and 5 times the powers of ten, or those powers alone where they are many. */
function onLogGrid(_, splits) {
  const digits = splits.length > 30 ? [1] : [1, 2, 5];
  return splits.map((value) => {
    const first = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
    return digits.some((one) => Math.abs(first - one) < 1e-6) ? value : null;
  });
}

/**
 * Horizontal bars with their spread, as an accessible table of meters drawn by CSS widths.
 *
 *   const bars = barChart(container, { label: "AdamW step", unit: "ms" });
 *   bars.set([{ name: "fused", value: 1.2, low: 1.1, high: 1.4 }, { name: "one by one", value: 9.7 }]);
 *
 * `max` fixes the full width; `format` writes the values.
 */
export function barChart(container, { label, unit = "", max = null, format = short }) {
  const table = document.createElement("table");
  table.className = "bars";
  container.replaceChildren(table);
  return {
    set(rows) {
      const full = max ?? Math.max(...rows.map(({ value, high }) => high ?? value), Number.MIN_VALUE);
      const percent = (value) => `${Math.min(100, Math.max(0, (100 * (value ?? 0)) / full))}%`;
      table.replaceChildren(Object.assign(document.createElement("caption"), { className: "visually-hidden", textContent: label }));
      for (const { name, value, low, high, color: chosen, strong } of rows) {
        const row = table.insertRow();
        if (strong) row.className = "strong";
        const head = document.createElement("th");
        head.scope = "row";
        head.textContent = name;
        const track = document.createElement("td");
        track.className = "bar-track";
        track.setAttribute("aria-hidden", "true");
        const bar = track.appendChild(document.createElement("div"));
        bar.className = "bar";
        bar.style.width = percent(value);
        if (chosen) bar.style.background = `var(--${chosen})`;
        if (low !== undefined) {
          const whisker = track.appendChild(document.createElement("div"));
          whisker.className = "bar-spread";
          whisker.style.left = percent(low);
          whisker.style.width = percent(high - low);
        }
        row.append(head, track);
        const figure = row.insertCell();
        figure.className = "bar-value";
        if (value === null) figure.textContent = "–";
        else figure.textContent = unit ? `${format(value)} ${unit}` : format(value);
      }
    },
  };
}
