// A canvas to write on: mouse, pen and touch through pointer events. Strokes are kept as points.
import { color, everyFrame, onTheme } from "./dom.js";

/** `onChange(strokes)` follows each movement; strokes are lists of [x, y] from 0 to 1. */
export class Pad {
  #strokes = [];
  #ghost = null; // 64 numbers from 0 to 16, shown instead of strokes
  #pointer = null;

  constructor(canvas, onChange) {
    this.canvas = canvas;
    this.draw = everyFrame(() => this.#draw());
    const changed = () => {
      this.draw();
      onChange(this.#strokes);
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (this.#pointer !== null || event.button > 0) return;
      event.preventDefault();
      this.#pointer = event.pointerId;
      canvas.setPointerCapture(event.pointerId);
      this.#ghost = null;
      this.#strokes.push([this.#place(event)]);
      changed();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.pointerId !== this.#pointer) return;
      const events = event.getCoalescedEvents?.() ?? [];
      for (const one of events.length ? events : [event]) this.#strokes.at(-1).push(this.#place(one));
      changed();
    });
    for (const kind of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(kind, (event) => {
        if (event.pointerId === this.#pointer) this.#pointer = null;
      });
    }
    onTheme(this.draw);
    this.undo = () => {
      this.#strokes.pop();
      changed();
    };
    /** Shows strokes that were drawn elsewhere. */
    this.draft = (strokes) => {
      this.#strokes = strokes;
      this.#ghost = null;
      changed();
    };
    this.clear = () => {
      this.#strokes = [];
      this.#ghost = null;
      changed();
    };
  }

  /** Lists of [x, y] from 0 to 1. */
  get strokes() {
    return this.#strokes;
  }

  get isEmpty() {
    return this.#strokes.length === 0;
  }

  /** Shows an image of the data set in place of a drawing. */
  show(ink) {
    this.#strokes = [];
    this.#ghost = ink;
    this.draw();
  }

  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  #draw() {
    const { canvas } = this;
    const context = canvas.getContext("2d");
    const size = canvas.width;
    context.clearRect(0, 0, size, size);
    context.strokeStyle = color("line");
    context.lineWidth = 1;
    context.beginPath();
    for (let line = 1; line < 8; line++) {
      const at = Math.round((size * line) / 8) + 0.5;
      context.moveTo(at, 0);
      context.lineTo(at, size);
      context.moveTo(0, at);
      context.lineTo(size, at);
    }
    context.stroke();
    if (this.#ghost) drawInk(context, this.#ghost, size);
    else if (this.isEmpty) {
      context.fillStyle = color("ink-soft");
      context.font = `${size / 20}px Archivo, system-ui, sans-serif`;
      context.textAlign = "center";
      context.fillText("Draw here", size / 2, size * 0.52);
    }
    context.strokeStyle = context.fillStyle = color("ink");
    context.lineWidth = size / 16;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.#strokes) {
      context.beginPath();
      const [[x, y]] = stroke;
      context.moveTo(x * size, y * size);
      for (const [nextX, nextY] of stroke.length > 1 ? stroke.slice(1) : [[x + 1e-4, y]]) context.lineTo(nextX * size, nextY * size);
      context.stroke();
    }
  }
}

/** Draws an image of 64 numbers from 0 (paper) to 16 (ink). */
export function drawInk(context, ink, size) {
  const cell = size / 8;
  context.fillStyle = color("ink");
  ink.forEach((value, at) => {
    context.globalAlpha = value / 16;
    context.fillRect((at % 8) * cell, Math.floor(at / 8) * cell, cell, cell);
  });
  context.globalAlpha = 1;
}
