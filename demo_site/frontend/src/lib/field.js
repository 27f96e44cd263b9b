// A map of a function on a grid: washes of colour, contour lines, and points. Used for decision maps.
import { color } from "./dom.js";

const parse = (css) => (css.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);

/** The class colours of maps, by token. */
export const CLASS_COLORS = ["series-2", "series-4", "series-3", "series-5", "series-6", "series-7", "series-8", "series-1"];

/**
 * Draws probabilities of classes on a square canvas.
 *
 *   drawClasses(canvas, { logits: Float32Array, side: 64, classes: 3 }, { points: Float32Array, labels, reach })
 */
export function drawClasses(canvas, field, { points, labels, reach }) {
  const context = canvas.getContext("2d");
  const size = canvas.width;
  const paper = parse(color("sheet"));
  context.fillStyle = `rgb(${paper})`;
  context.fillRect(0, 0, size, size);
  if (field) {
    const palette = CLASS_COLORS.map((name) => parse(color(name)));
    const { shares, image } = washes(field, palette, paper);
    const small = new OffscreenCanvas(field.side, field.side);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = true;
    context.imageSmoothingQuality = "high";
    context.drawImage(small, 0, 0, size, size);
    context.strokeStyle = color("ink");
    for (const [level, opacity] of [[0.5, 0.55], [0.7, 0.3], [0.9, 0.3], [0.99, 0.3]]) {
      context.globalAlpha = opacity;
      context.lineWidth = (level === 0.5 ? 2 : 1) * (size / 640);
      for (const share of shares) strokeContour(context, share, field.side, level, size / field.side);
    }
    context.globalAlpha = 1;
  }
  if (points) drawPoints(context, size, { points, labels, reach }, paper);
}

function washes({ logits, side, classes }, palette, paper) {
  const image = new ImageData(side, side);
  const shares = Array.from({ length: classes }, () => new Float32Array(side * side));
  for (let at = 0; at < side * side; at++) {
    let largest = -Infinity;
    for (let one = 0; one < classes; one++) largest = Math.max(largest, logits[at * classes + one]);
    let sum = 0;
    for (let one = 0; one < classes; one++) sum += Math.exp(logits[at * classes + one] - largest);
    const mixed = [0, 0, 0];
    let peak = 0;
    for (let one = 0; one < classes; one++) {
      const share = Math.exp(logits[at * classes + one] - largest) / sum;
      shares[one][at] = share;
      peak = Math.max(peak, share);
      for (let part = 0; part < 3; part++) mixed[part] += share * palette[one % palette.length][part];
    }
    const strength = 0.34 * (0.25 + 0.75 * peak);
    for (let part = 0; part < 3; part++) image.data[4 * at + part] = paper[part] * (1 - strength) + mixed[part] * strength;
    image.data[4 * at + 3] = 255;
  }
  return { shares, image };
}

/** Marching squares: one line through each cell whose corners lie on both sides of the level. */
export function strokeContour(context, values, side, level, cell) {
  context.beginPath();
  for (let row = 0; row + 1 < side; row++) {
    for (let column = 0; column + 1 < side; column++) {
      const at = row * side + column;
      const corners = [values[at], values[at + 1], values[at + side + 1], values[at + side]];
      const crossings = [];
      for (let edge = 0; edge < 4; edge++) {
        const [one, other] = [corners[edge], corners[(edge + 1) % 4]];
        if (one < level === other < level) continue;
        const along = (level - one) / (other - one);
        crossings.push([
          column + 0.5 + [along, 1, 1 - along, 0][edge],
          row + 0.5 + [0, along, 1, 1 - along][edge],
        ]);
      }
      for (let pair = 0; pair + 1 < crossings.length; pair += 2) {
        context.moveTo(crossings[pair][0] * cell, crossings[pair][1] * cell);
        context.lineTo(crossings[pair + 1][0] * cell, crossings[pair + 1][1] * cell);
      }
    }
  }
  context.stroke();
}

function drawPoints(context, size, { points, labels, reach }, paper) {
  const colors = CLASS_COLORS.map(color);
  const place = (value) => ((value / reach + 1) / 2) * size;
  const radius = (size / 640) * 4.2;
  context.lineWidth = radius / 3;
  context.strokeStyle = `rgb(${paper})`;
  labels.forEach((label, number) => {
    context.beginPath();
    context.arc(place(points[2 * number]), place(-points[2 * number + 1]), radius, 0, 2 * Math.PI);
    context.fillStyle = colors[label % colors.length];
    context.fill();
    context.stroke();
  });
}
