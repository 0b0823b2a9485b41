"use strict";
// The switch between light and dark; until it is used, the page does as the system does.
{
  const button = document.getElementById("theme");
  const chosen = document.documentElement.dataset;
  const isDark = () => (chosen.theme
    ? chosen.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches);
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    chosen.theme = isDark() ? "light" : "dark";
    name();
  });
  name();
}
