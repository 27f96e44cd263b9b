// Runs before the first paint, so that a chosen theme does not flash: automatic, light, dark. Nor does what a page in a
// frame (?embed) leaves out.
(() => {
  const themes = ["auto", "light", "dark"];
  const root = document.documentElement;
  root.toggleAttribute("data-embed", new URLSearchParams(location.search).has("embed"));
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage is blocked: the system's theme is used
    }
  };
  let theme = themes.includes(stored()) ? stored() : "auto";

  const apply = () => {
    root.dataset.theme = theme;
    dispatchEvent(new Event("themechange"));
  };
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const label = () => {
      button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
      button.setAttribute("aria-label", `Theme: ${button.textContent}`);
    };
    button.hidden = false;
    label();
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      try {
        localStorage.setItem("theme", theme);
      } catch {
        // the choice lasts as long as the page
      }
      apply();
      label();
    });
    document.querySelector('.site-nav [aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "center" });
  });
})();
