// Lines over examples, as SVG.
import { percent, svg } from "./dom.js";

/**
 * A chart of shares between 0 and 1.
 * @param {{x: number, y: number}[]} points sorted by x
 * @param {{title: string, unit: string, small?: boolean}} options
 */
export function lineChart(points, { title, unit, small = false }) {
  const [width, height] = small ? [260, 96] : [560, 240];
  const edge = small ? { left: 4, right: 4, top: 6, bottom: 6 } : { left: 44, right: 14, top: 12, bottom: 30 };
  const first = points[0]?.x ?? 0;
  const last = Math.max(points.at(-1)?.x ?? 1, first + 1);
  const x = (value) => edge.left + ((value - first) / (last - first)) * (width - edge.left - edge.right);
  const y = (value) => edge.top + (1 - value) * (height - edge.top - edge.bottom);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": summary(points, title, unit) });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    chart.append(svg("line", { class: "grid", x1: edge.left, x2: width - edge.right, y1: y(share), y2: y(share) }));
    if (!small) chart.append(words(edge.left - 8, y(share) + 4, percent(share), "end"));
  }
  if (!small) {
    chart.append(words(x(first), height - 8, String(first), "start"));
    chart.append(words(x(last), height - 8, `${last} ${unit}`, "end"));
  }
  const line = points.map((one) => `${x(one.x).toFixed(1)},${y(one.y).toFixed(1)}`);
  if (line.length > 1) {
    const area = `M${x(first)},${y(0)} L${line.join(" L")} L${x(points.at(-1).x)},${y(0)} Z`;
    chart.append(svg("path", { class: "area", d: area }), svg("polyline", { class: "line", points: line.join(" ") }));
  }
  const end = points.at(-1);
  if (end) chart.append(svg("circle", { class: "end", cx: x(end.x), cy: y(end.y), r: small ? 3.5 : 5 }));
  return chart;
}

function words(x, y, text, anchor) {
  const element = svg("text", { x, y, "text-anchor": anchor });
  element.textContent = text;
  return element;
}

function summary(points, title, unit) {
  if (!points.length) return `${title}: nothing measured yet.`;
  const values = points.map((one) => one.y);
  return `${title}: ${percent(values.at(-1))} at ${points.at(-1).x} ${unit}, `
    + `between ${percent(Math.min(...values))} and ${percent(Math.max(...values))} since ${points[0].x}.`;
}
