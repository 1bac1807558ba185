// Loaded before anything is painted, so that the page does not flash in the wrong colours.
"use strict";
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("odar-theme"); } catch { /* storage may be switched off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
