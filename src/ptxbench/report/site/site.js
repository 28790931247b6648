// Filters and sorts tables, and goes from turn to turn by key; every page is complete without it.
"use strict";

for (const input of document.querySelectorAll("input[data-filter]")) {
  const rows = document.getElementById(input.dataset.filter).tBodies[0].rows;
  const words = Array.from(rows, (row) => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/);
    for (let i = 0; i < rows.length; i++) rows[i].hidden = !wanted.every((word) => words[i].includes(word));
  });
}

for (const head of document.querySelectorAll("th[data-sort]")) {
  head.tabIndex = 0;
  const sort = () => {
    const body = head.closest("table").tBodies[0];
    const value = (row) => parseFloat(row.cells[head.cellIndex].textContent) || -1;
    const sign = head.ariaSort === "descending" ? 1 : -1;
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = sign < 0 ? "descending" : "ascending";
    body.append(...Array.from(body.rows).sort((a, b) => sign * (value(a) - value(b))));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    document.querySelector("input[data-filter]")?.focus();
  }
  const step = { j: 1, k: -1 }[event.key];
  const turns = Array.from(document.querySelectorAll("section.turn"));
  if (!step || !turns.length) return;
  const here = turns.findIndex((turn) => turn === document.activeElement);
  const next = turns[Math.min(Math.max(here + step, 0), turns.length - 1)];
  next.scrollIntoView();
  next.focus({ preventScroll: true });
});
