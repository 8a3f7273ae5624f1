// What the theme leaves out for keyboards and screen readers: levels of captions, names of the two side
// columns, ends of lines within long names, and code or tables that scroll sideways within reach of the tab key.
document.addEventListener("DOMContentLoaded", () => {
  for (const each of document.querySelectorAll(".caption[role=heading]")) each.setAttribute("aria-level", "2");
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "Sections of this page");
  const ends = /(?<=\w{3})[_.(=/](?=\w{2}|["'[{*])|(?<=[a-z]{3})(?=[A-Z][a-z]{2})/g;
  for (const each of document.querySelectorAll("code.literal .pre")) each.innerHTML = each.innerHTML.replace(ends, "$&<wbr>");
  for (const each of document.querySelectorAll("pre, .table-wrapper")) if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
});
