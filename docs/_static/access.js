// What the theme leaves out for keyboards and screen readers: levels of captions, names of the two side
// columns, and code or tables that scroll sideways within reach of the tab key.
document.addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll(".caption[role=heading]")) each.setAttribute("aria-level", "2");
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Sections of this page");
  for (const each of document.querySelectorAll("pre, .table-wrapper")) if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
});
