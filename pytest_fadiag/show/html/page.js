"use strict";
(() => {
  const collator = new Intl.Collator("en", { numeric: true });
  const byId = (id) => document.getElementById(id);

  // Without a key a cell is not measured or undefined: such rows stay last whichever way the others go.
  function compare(a, b, column, numeric, direction) {
    const x = a.cells[column].dataset.sort, y = b.cells[column].dataset.sort;
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    if (!numeric) return direction * collator.compare(x, y);
    const p = Number(x), q = Number(y);
    return direction * (p < q ? -1 : p > q ? 1 : 0);
  }

  function sortable(table) {
    const body = table.tBodies[0], original = [...body.rows], headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      header.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const next = { none: "ascending", ascending: "descending", descending: "none" }[header.getAttribute("aria-sort")];
        for (const other of headers) other.setAttribute("aria-sort", "none");
        header.setAttribute("aria-sort", next);
        const rows = [...original];
        const direction = next === "descending" ? -1 : 1, numeric = header.classList.contains("number");
        if (next !== "none") rows.sort((a, b) => compare(a, b, column, numeric, direction));
        table.classList.toggle("sorted", next !== "none");
        body.append(...rows);
        const reports = rows.map((row) => byId(row.dataset.report)).filter(Boolean);
        if (reports.length) byId("reports").append(...reports);
      });
    });
  }

  function filterable(table, form) {
    const find = byId("find"), status = byId("status"), fired = byId("fired"), rows = [...table.tBodies[0].rows];
    function apply() {
      const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const { find: text, standing, fired: keys } = row.dataset;
        const kept = words.every((word) => text.includes(word)) && (!status.value || standing === status.value) &&
          (!fired.value || (fired.value === "none" ? keys === "" : keys.split(" ").includes(fired.value)));
        row.hidden = !kept;
        byId(row.dataset.report).hidden = !kept;
        shown += kept;
      }
      byId("shown").textContent = `${shown} of ${rows.length} shown`;
    }
    form.addEventListener("input", apply);
    form.addEventListener("change", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    apply();
  }

  function reveal() {
    const target = location.hash.startsWith("#report-") && byId(location.hash.slice(1));
    if (target) {
      target.open = true;
      target.querySelector("summary").focus({ preventScroll: true });
      target.scrollIntoView();
    }
  }

  const everything = () => [...document.querySelectorAll("#reports details")];
  document.querySelectorAll("table.sortable").forEach(sortable);
  for (const controls of document.querySelectorAll(".controls")) controls.hidden = false;
  if (byId("audit")) {
    filterable(byId("audit"), document.querySelector("form.controls"));
    byId("open").addEventListener("click", () => everything().forEach((report) => { report.open = true; }));
    byId("close").addEventListener("click", () => everything().forEach((report) => { report.open = false; }));
    byId("audit").addEventListener("click", (event) => {
      // The same link twice changes no hash.
      if (event.target.closest("a") && event.target.closest("a").hash === location.hash) reveal();
    });
    addEventListener("hashchange", reveal);
    reveal();
  }

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = everything().filter((report) => !report.open);
    for (const report of closed) report.open = true;
  });
  addEventListener("afterprint", () => { for (const report of closed) report.open = false; });
})();
