"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], original = [...body.rows], headers = [...table.tHead.rows[0].cells];
  const collator = new Intl.Collator("en", { numeric: true });
  const key = (row, column) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
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
      const rows = next === "none" ? original : original.filter((row) => !row.classList.contains("mean"));
      const direction = next === "descending" ? -1 : 1, numeric = header.classList.contains("number");
      const compare = (a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        if (!numeric) return direction * collator.compare(x, y);
        const [p, q] = [parseFloat(x), parseFloat(y)];  // what has no number stays last
        return Number.isNaN(p) || Number.isNaN(q) ? Number.isNaN(p) - Number.isNaN(q) : direction * (p - q);
      };
      body.replaceChildren(...(next === "none" ? rows : [...rows].sort(compare)));
    });
  });
}
const reports = [...document.querySelectorAll("details")];
const reveal = () => {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
};
addEventListener("hashchange", reveal);
reveal();
document.getElementById("open")?.addEventListener("click", () => {
  const closed = reports.some((report) => !report.open);
  for (const report of reports) report.open = closed;
});
for (const box of document.querySelectorAll(".tools input")) {
  box.addEventListener("change", () => {
    for (const row of document.querySelectorAll("tr[data-word]")) if (row.dataset.word === box.name) row.hidden = !box.checked;
  });
}
const save = (name, type, text) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
};
document.getElementById("save").addEventListener("click", () =>
  save("audit.json", "application/json", document.getElementById("audit").textContent));
document.getElementById("csv")?.addEventListener("click", () => {
  const cells = (row) => [...row.cells].map((cell) => `"${(cell.dataset.sort ?? (cell.querySelector("button")?.firstChild ?? cell).textContent.trim()).replaceAll('"', '""')}"`);
  const rows = document.querySelectorAll("table.sortable tr:not(.mean)");
  save("audit.csv", "text/csv", [...rows].map((row) => cells(row).join(",")).join("\n"));
});
