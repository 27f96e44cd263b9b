// The slider of a learning rate: it goes by powers of ten.
import { short } from "./chart.js";
import { find, setText } from "./dom.js";

/** Calls `onInput` with what is chosen; returns a function that shows a rate. */
export function rateSlider(onInput) {
  const slider = find("#lr");
  const label = (value) => {
    setText(find("#lr-value"), short(value));
    slider.setAttribute("aria-valuetext", short(value));
  };
  slider.addEventListener("input", () => {
    const value = Number((10 ** Number(slider.value)).toPrecision(2));
    label(value);
    onInput(value);
  });
  return (value) => {
    slider.value = Math.log10(value);
    label(value);
  };
}
