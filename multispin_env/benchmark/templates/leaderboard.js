"use strict";

// The chosen theme; files opened from disk may have no storage.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

function storedTheme() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

function storeTheme(theme) {
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // It lasts as long as the page.
  }
}

if (["light", "dark"].includes(storedTheme())) root.dataset.theme = storedTheme();

function prepareTheme() {
  const button = document.querySelector("button.theme");
  const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", isDark());
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    storeTheme(root.dataset.theme);
    show();
  });
  dark.addEventListener("change", show);
  show();
}

// Sorting: what is missing comes last, ties stay in order.
function sortRows(table, column, numeric, descending) {
  const compare = (a, b) => (numeric ? a - b : (a > b) - (a < b));
  const value = (row) => row.cells[column].dataset.value.toLowerCase();
  const rows = [...table.tBodies[0].rows].sort((first, second) => {
    const [a, b] = [value(first), value(second)];
    if (a === "" || b === "") return (a === "") - (b === "");
    return descending ? compare(b, a) : compare(a, b);
  });
  table.tBodies[0].append(...rows);
}

function prepareSorting(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const other = { ascending: "descending", descending: "ascending" };
      const direction = other[head.getAttribute("aria-sort")] || head.dataset.first;
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction);
      sortRows(table, column, head.dataset.kind === "number", direction === "descending");
    });
  });
}

// Filters: they hide a policy wherever it is.
function prepareFilters() {
  const form = document.querySelector("#ranking form");
  const rows = [...document.querySelectorAll("table.ranking tbody tr")];
  const everywhere = document.querySelectorAll("[data-policy]");
  const fits = ({ dataset }) =>
    dataset.text.includes(form.text.value.trim().toLowerCase()) &&
    ["", dataset.division].includes(form.division.value) &&
    ["", dataset.status].includes(form.status.value) &&
    (dataset.status === "verified" || !form.verified.checked);
  const apply = () => {
    const shown = new Set(rows.filter(fits).map((row) => row.dataset.policy));
    for (const element of everywhere) {
      element.toggleAttribute("hidden", !shown.has(element.dataset.policy));
    }
    form.querySelector("output").textContent = `${shown.size} of ${rows.length} policies`;
    document.querySelector(".empty").hidden = shown.size > 0;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply));
  apply(); // a browser may remember what was filled in
}

// Tasks: one at a time, or all; links lead to a task or open a policy's card.
function prepareTasks() {
  const select = document.querySelector("#tasks select");
  const show = () => {
    for (const task of document.querySelectorAll(".task")) {
      task.hidden = ![task.dataset.task, ""].includes(select.value);
    }
  };
  const follow = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.matches(".task")) {
      select.value = target.dataset.task;
      show();
    }
    if (target.matches("details")) target.open = true;
    target.scrollIntoView();
  };
  select.addEventListener("input", show);
  addEventListener("hashchange", follow);
  show();
  follow();
}

document.addEventListener("DOMContentLoaded", () => {
  root.classList.add("has-script");
  prepareTheme();
  document.querySelectorAll("table.sortable").forEach(prepareSorting);
  prepareFilters();
  prepareTasks();
});
