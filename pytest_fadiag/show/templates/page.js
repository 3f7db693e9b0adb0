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
document.getElementById("save").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([document.getElementById("audit").textContent], { type: "application/json" }));
  link.download = "audit.json";
  link.click();
});
