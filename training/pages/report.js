"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descends = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descends ? "descending" : "ascending");
      const value = (row) => Number(row.cells[column].dataset.value);
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => (value(one) - value(other)) * (descends ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
}
const picker = document.getElementById("groups");
if (picker) {
  const show = () => {
    for (const group of document.querySelectorAll(".group")) {
      group.hidden = picker.value !== "all" && group.id !== picker.value;
      // The picker says it already.
      group.querySelector("h3").hidden = picker.value !== "all";
    }
  };
  picker.parentElement.hidden = false;
  picker.addEventListener("change", show);
  show();
}
document.documentElement.dataset.ready = "yes";
