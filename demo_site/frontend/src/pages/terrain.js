// A landscape as a contour map on a canvas, and the tracks of racers over it.
import { color } from "../lib/dom.js";

const BANDS = 16;

function rgb(name) {
  return color(name).match(/[\d.]+/g).slice(0, 3).map(Number);
}

function mixed(from, to, share) {
  return from.map((value, channel) => value + (to[channel] - value) * share);
}

/** Heights on a logarithmic scale from 0 to BANDS: valleys are far deeper than the hills are high. */
function levels(heights) {
  const sorted = Float32Array.from(heights).sort();
  const floor = Math.max(sorted[Math.floor(sorted.length * 0.01)], 1e-3);
  const low = Math.log(floor);
  const high = Math.log(sorted[sorted.length - 1] + floor);
  return Float32Array.from(heights, (value) => (BANDS * (Math.log(value + floor) - low)) / (high - low));
}

/** The map of one surface, drawn again for each size and theme. `x` and `y` are the ends of the axes. */
export class Terrain {
  #levels;
  #picture = null;

  constructor({ heights, grid, x, y, minima }) {
    this.grid = grid;
    this.x = x;
    this.y = y;
    this.minima = minima;
    this.#levels = levels(heights);
  }

  /** Forget the picture: the theme has changed. */
  refresh() {
    this.#picture = null;
  }

  /** A point of the landscape in pixels of a canvas. */
  place([x, y], { width, height }) {
    return [((x - this.x[0]) / (this.x[1] - this.x[0])) * width, ((this.y[1] - y) / (this.y[1] - this.y[0])) * height];
  }

  /** The point of the landscape under a place from 0 to 1 of the canvas. */
  at(right, down) {
    return [this.x[0] + right * (this.x[1] - this.x[0]), this.y[1] - down * (this.y[1] - this.y[0])];
  }

  draw(context) {
    const { width, height } = context.canvas;
    if (this.#picture?.width !== width || this.#picture?.height !== height) this.#picture = this.#paint(width, height);
    context.putImageData(this.#picture, 0, 0);
    this.#markMinima(context);
    this.#labelAxes(context);
  }

  /** Every pixel in the tint of its band; where two bands meet, an anti-aliased contour line. */
  #paint(width, height) {
    const [sheet, water, earth, line] = ["sheet", "series-6", "series-4", "series-4"].map(rgb);
    const tints = Array.from({ length: BANDS + 2 }, (_, band) => {
      const share = band / BANDS;
      return mixed(mixed(sheet, water, 0.42 * (1 - share) ** 2), earth, 0.16 * share);
    });
    const picture = new ImageData(width, height);
    const { data } = picture;
    const { grid } = this;
    const cell = (grid - 1) / Math.max(width, height);
    for (let row = 0; row < height; row++) {
      const v = ((height - 1 - row) / (height - 1)) * (grid - 1);
      const below = Math.min(Math.floor(v), grid - 2);
      const up = v - below;
      for (let column = 0; column < width; column++) {
        const u = (column / (width - 1)) * (grid - 1);
        const left = Math.min(Math.floor(u), grid - 2);
        const right = u - left;
        const corner = below * grid + left;
        const [a, b] = [this.#levels[corner], this.#levels[corner + 1]];
        const [c, d] = [this.#levels[corner + grid], this.#levels[corner + grid + 1]];
        const level = (a + (b - a) * right) * (1 - up) + (c + (d - c) * right) * up;
        const slope = Math.hypot((b - a) * (1 - up) + (d - c) * up, (c - a) * (1 - right) + (d - b) * right) * cell;
        const distance = Math.abs(level - Math.round(level)) / Math.max(slope, 1e-6); // pixels to the contour
        const ink = 0.5 * Math.max(0, Math.min(1, 1.1 - distance));
        const tint = tints[Math.max(0, Math.floor(level))] ?? tints[BANDS];
        const at = 4 * (row * width + column);
        for (let channel = 0; channel < 3; channel++) {
          data[at + channel] = tint[channel] + (line[channel] - tint[channel]) * ink;
        }
        data[at + 3] = 255;
      }
    }
    return picture;
  }

  #markMinima(context) {
    const arm = 6 * (context.canvas.width / context.canvas.clientWidth || 1);
    context.strokeStyle = color("ink");
    context.lineWidth = arm / 4;
    context.beginPath();
    for (const minimum of this.minima) {
      const [x, y] = this.place(minimum, context.canvas);
      context.moveTo(x - arm, y);
      context.lineTo(x + arm, y);
      context.moveTo(x, y - arm);
      context.lineTo(x, y + arm);
    }
    context.stroke();
  }

  /** Coordinates along the lower and the left edge. */
  #labelAxes(context) {
    const { width, height, clientWidth } = context.canvas;
    const scale = width / clientWidth || 1;
    context.fillStyle = color("ink-soft");
    context.font = `${11 * scale}px "JetBrains Mono", monospace`;
    const text = (value) => String(Number(value.toPrecision(2)));
    for (const share of [0.2, 0.4, 0.6, 0.8]) {
      const [x, y] = this.at(share, 1 - share);
      context.textAlign = "center";
      context.textBaseline = "bottom";
      context.fillText(text(x), share * width, height - 4 * scale);
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillText(text(y), 5 * scale, (1 - share) * height);
    }
  }
}

/**
 * The racers' tracks with a halo, and above them all their numbers. `points` are [x, y] of the landscape. A racer that is
 * not on the map is marked at its edge, with an arrow towards it; the number of one that is out is hollow.
 */
export function drawRacers(context, terrain, racers, scale) {
  const placed = racers.map((racer) => ({
    ...racer,
    places: racer.points.map((point) => terrain.place(point, context.canvas)),
  }));
  for (const { places, color: name } of placed) drawTrack(context, places, name, scale);
  for (const { places, color: name, number, out } of placed) {
    const at = nearestShown(places.at(-1), context.canvas, scale);
    if (at.away) drawArrow(context, at, name, scale);
    drawNumber(context, at.place, name, number, scale, out !== null);
  }
}

const RADIUS = 9; // of a number
const ARROW = 7;

/** Where a racer is marked, and if that is not where it is the direction, in radians, in which it is. */
function nearestShown([x, y], { width, height }, scale) {
  const margin = (RADIUS + ARROW) * scale;
  const within = (value, size) => Math.min(Math.max(value, margin), size - margin);
  if (x >= 0 && x <= width && y >= 0 && y <= height) return { place: [x, y], away: false };
  const place = [within(x, width), within(y, height)];
  return { place, away: true, direction: Math.atan2(y - place[1], x - place[0]) };
}

function drawArrow(context, { place: [x, y], direction }, name, scale) {
  const point = (distance, turn) => [x + distance * scale * Math.cos(direction + turn), y + distance * scale * Math.sin(direction + turn)];
  context.beginPath();
  context.moveTo(...point(RADIUS + ARROW, 0));
  context.lineTo(...point(RADIUS + 1, 0.6));
  context.lineTo(...point(RADIUS + 1, -0.6));
  context.closePath();
  context.fillStyle = color(name);
  context.fill();
}

function drawTrack(context, places, name, scale) {
  const far = 100 * context.canvas.width; // a canvas draws nothing of a line to where floats end
  const clamped = (value) => Math.min(Math.max(value, -far), far);
  context.lineJoin = context.lineCap = "round";
  for (const [stroke, width] of [[color("sheet"), 4.5], [color(name), 2.25]]) {
    context.strokeStyle = stroke;
    context.lineWidth = width * scale;
    context.beginPath();
    places.forEach(([x, y], index) => (index ? context.lineTo(clamped(x), clamped(y)) : context.moveTo(x, y)));
    context.stroke();
  }
  const [startX, startY] = places[0];
  context.beginPath();
  context.arc(startX, startY, 4 * scale, 0, 2 * Math.PI);
  context.lineWidth = 2 * scale;
  context.strokeStyle = color("ink");
  context.stroke();
}

function drawNumber(context, [x, y], name, number, scale, isHollow) {
  const [inside, outside] = isHollow ? ["sheet", name] : [name, "sheet"];
  context.beginPath();
  context.arc(x, y, RADIUS * scale, 0, 2 * Math.PI);
  context.fillStyle = color(inside);
  context.fill();
  context.lineWidth = 1.5 * scale;
  context.strokeStyle = color(outside);
  context.stroke();
  context.fillStyle = color(outside);
  context.font = `600 ${11 * scale}px "JetBrains Mono", monospace`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(number, x, y + 0.5 * scale);
}
