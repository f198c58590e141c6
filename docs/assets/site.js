// Helpers of the site. None of them sends or loads anything.

// A pasted message is compared with the patterns of the rules, which `explain` uses too. The rule whose
// pattern says most is searched by its title; without one, the message is searched by its words.
function rulesFor(text, rules) {
  const score = ([, , symptoms]) => {
    const found = symptoms.filter(([pattern]) => new RegExp(pattern).test(text));
    return found.length && Math.max(...found.map(([, length]) => Math.min(length, 45))) + found.length;
  };
  const scored = rules.map((rule) => [score(rule), rule]).filter(([points]) => points > 0);
  return scored.sort(([a], [b]) => b - a).map(([, rule]) => rule);
}

// Marks such as ":" and "*" are operators of the search, and numbers without letters say little.
function asWords(text) {
  const words = text.replace(/0x[0-9a-f]+|\S*[\/\\](?=\S)/gi, " ").match(/[\p{L}\p{N}]{2,}/gu) || [];
  const named = words.filter((word) => /\p{L}/u.test(word));
  return [...new Set(named)].slice(0, 40).join(" ");
}

// A page has its rule's id as a tag, with a slash and hyphens that the search does not split at.
function asTag(id) {
  return id.replaceAll("/", "\u2215").replaceAll("-", "\u2011");
}

function queryFor(text, rules) {
  const [first] = rulesFor(text, rules);
  return first ? `${asTag(first[0])} ${asWords(first[1])}` : asWords(text);
}

const messages = typeof document !== "undefined" && document.currentScript
  && new URL("messages.json", document.currentScript.src);

document.addEventListener("paste", async (event) => {
  const input = event.target;
  if (!input.matches || !input.matches("[data-md-component=search-query]")) return;
  event.preventDefault();
  const text = event.clipboardData.getData("text");
  const rules = await fetch(messages).then((answer) => answer.json());
  input.value = queryFor(text, rules);
  input.dispatchEvent(new Event("keyup", { bubbles: true }));
}, true);

// Tables are sorted by a click on a heading, or by Enter on it.
function compare(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

function sortBy(heading) {
  const body = heading.closest("table").tBodies[0];
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentNode.cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const text = (row) => row.cells[heading.cellIndex].textContent.trim();
  const rows = [...body.rows].sort((a, b) => (down ? compare(text(b), text(a)) : compare(text(a), text(b))));
  body.append(...rows);
}

// Lists of pages whose section is itself a page have an empty label.
function nameLists() {
  for (const list of document.querySelectorAll("nav.md-nav[aria-labelledby]")) {
    const label = document.getElementById(list.getAttribute("aria-labelledby"));
    if (label && label.textContent.trim()) continue;
    list.removeAttribute("aria-labelledby");
    list.setAttribute("aria-label", list.querySelector(".md-nav__title").textContent.trim());
  }
}

// Code that is too wide for the screen scrolls by the keyboard too, and its button is not a landmark: a
// page would have many without a name. The theme adds the button, and takes the focus away.
function reachCode() {
  for (const code of document.querySelectorAll("pre > code")) {
    if (code.tabIndex !== 0 && code.scrollWidth > code.clientWidth) code.tabIndex = 0;
  }
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) {
    buttons.setAttribute("role", "none");
  }
}

if (typeof window !== "undefined") {
  nameLists();
  reachCode();
  window.addEventListener("resize", reachCode);
  new MutationObserver(reachCode).observe(document.body, {
    attributeFilter: ["tabindex"], childList: true, subtree: true,
  });
  for (const dialog of document.querySelectorAll(".md-search")) dialog.setAttribute("aria-label", "Search");
  for (const heading of document.querySelectorAll(".md-content table:not([class]) thead th")) {
    heading.setAttribute("aria-sort", "none");
    heading.tabIndex = 0;
    heading.addEventListener("click", () => sortBy(heading));
    heading.addEventListener("keydown", (event) => event.key === "Enter" && sortBy(heading));
  }
}
