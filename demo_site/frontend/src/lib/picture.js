// What a page shows on its canvases, as a PNG: with the title, the figures and the address that leads back to it.
import { color, create, toast } from "./dom.js";

const HEIGHT = 720; // of the canvases in a picture
const MARGIN = 40;
const SANS = "Archivo, system-ui, sans-serif";
const MONO = '"JetBrains Mono", monospace';

/** The address of what is shown, without what is packed into it. */
const place = () => `${location.host}${location.pathname}${decodeURIComponent(location.search)}`;

/** Text that fits, cut off at its end where it has to be. */
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

/** Lines of parts, {text, color}, that are not wider than the picture. */
function wrapped(context, parts, width) {
  const lines = [[]];
  let used = 0;
  for (const part of parts) {
    const wide = context.measureText(part.text).width + MARGIN;
    if (used && used + wide > width) {
      lines.push([]);
      used = 0;
    }
    lines.at(-1).push({ ...part, at: used });
    used += wide;
  }
  return lines;
}

/**
 * The picture as a canvas.
 *
 * Options: `title`; `canvases`, side by side and of one height; `figures`, [[name, value], …]; `legend`, [{label, color}]
 * with tokens as colours, for what is drawn.
 */
export function drawPicture({ title, canvases, figures = [], legend = [] }) {
  const widths = canvases.map(({ width, height }) => Math.round((HEIGHT * width) / height));
  const inner = Math.max(widths.reduce((sum, width) => sum + width + MARGIN, -MARGIN), HEIGHT);
  const picture = create("canvas");
  const context = picture.getContext("2d");
  const small = `500 22px ${SANS}`;
  context.font = small;
  const parts = [
    ...legend.map(({ label, color: name }) => ({ text: `● ${label}`, color: name })),
    ...figures.map(([name, value]) => ({ text: `${name} ${value}`, color: "ink" })),
  ];
  const lines = wrapped(context, parts, inner);
  Object.assign(picture, { width: inner + 2 * MARGIN, height: MARGIN + 60 + HEIGHT + 20 + 34 * lines.length + 40 + MARGIN });
  context.fillStyle = color("paper");
  context.fillRect(0, 0, picture.width, picture.height);
  context.textBaseline = "top";
  context.fillStyle = color("ink");
  context.font = `700 40px ${SANS}`;
  context.fillText(fitted(context, title, inner), MARGIN, MARGIN);
  let x = MARGIN;
  let y = MARGIN + 60;
  canvases.forEach((canvas, number) => {
    context.drawImage(canvas, x, y, widths[number], HEIGHT);
    x += widths[number] + MARGIN;
  });
  y += HEIGHT + 20;
  context.font = small;
  for (const line of lines) {
    for (const { text, color: name, at } of line) {
      context.fillStyle = color(name);
      context.fillText(text, MARGIN + at, y);
    }
    y += 34;
  }
  context.fillStyle = color("ink-soft");
  context.font = `400 20px ${MONO}`;
  context.fillText(fitted(context, `OptiRS-Web · ${place()}`, inner), MARGIN, y + 14);
  return picture;
}

/** Makes a button save the picture that `describe()` tells of: what `drawPicture` takes, and `name`, of the file. */
export function pictureButton(button, describe) {
  button.addEventListener("click", async () => {
    await document.fonts.ready;
    const { name, ...what } = describe();
    const blob = await new Promise((resolve) => drawPicture(what).toBlob(resolve, "image/png"));
    if (!blob) return toast("The browser could not create the picture");
    const address = URL.createObjectURL(blob);
    create("a", { href: address, download: `optirs-web-${name}.png` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
    return toast("Picture saved");
  });
}
