"use strict";
(() => {
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const MOST_PRINTED = 10000; // on paper all records are listed, as an annex
  const isText = (column) => ["text", "finding", "verdict"].includes(column.kind);

  // The same rules as display.py, so that the first page does not change when the script takes over.
  function format(value, column) {
    if (value === null) return "\u2013";
    if (isText(column)) return value;
    if (column.kind === "p") return value < 0.0001 ? "<0.0001" : value.toFixed(value < 0.01 ? 4 : 3);
    if (column.kind === "count") return value.toLocaleString("en");
    const isPercent = column.kind === "percent";
    let text = isPercent ? (100 * value).toFixed(0) : value.toFixed(column.digits);
    if (Number(text) === 0) text = text.replace("-", "");
    else if (column.kind === "signed" && value > 0) text = "+" + text;
    return text.replace("-", "\u2212") + (isPercent ? "%" : "");
  }

  function fill(cell, value, column, plain) {
    const text = format(value, column);
    if (!isText(column)) {
      cell.textContent = text;
      return cell;
    }
    cell.className = "words";
    const inner = document.createElement(column.kind === "text" ? "bdi" : "span");
    inner.className = "tag tag-" + (column.kind === "verdict" ? text : plain.includes(text) ? "plain" : "flagged");
    if (column.kind === "text") inner.className = "name";
    inner.textContent = text;
    cell.append(inner);
    return cell;
  }

  function enliven(root) {
    const data = JSON.parse(root.querySelector("[data-rows]").textContent);
    const { columns, values, noun, plain } = data;
    const nRows = values[columns[0].key].length;
    const find = (name) => root.querySelector("[data-" + name + "]");
    const body = root.querySelector("tbody");
    const headers = [...root.querySelectorAll("thead th")];
    const texts = columns.filter(isText).map((column) => values[column.key]);
    const haystack = Array.from({ length: nRows }, (_, row) =>
      texts.map((cells) => cells[row] ?? "").join("\n").toLowerCase());
    let order = Array.from({ length: nRows }, (_, row) => row);
    let shown = order;
    let page = 0;
    let isPrinting = false;

    function sort(column, isDescending) {
      const cells = values[column.key];
      const compare = isText(column) ? collator.compare : (a, b) => a - b;
      const sign = isDescending ? -1 : 1;
      order = order.map((_, row) => row).sort((a, b) => {
        if (cells[a] === null || cells[b] === null) {
          return (cells[a] === null) - (cells[b] === null) || a - b; // what is missing stays last
        }
        return sign * compare(cells[a], cells[b]) || a - b;
      });
      for (const header of headers) {
        if (header.dataset.key === column.key) header.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
        else header.removeAttribute("aria-sort");
      }
      select();
    }

    function select() {
      const words = find("search").value.toLowerCase().split(/\s+/).filter(Boolean);
      const finding = find("finding") ? find("finding").value : "";
      shown = order.filter((row) =>
        (!finding || values.finding[row] === finding) && words.every((word) => haystack[row].includes(word)));
      page = 0;
      render();
    }

    function render() {
      const size = isPrinting ? MOST_PRINTED : Number(find("size").value);
      const nPages = Math.max(1, Math.ceil(shown.length / size));
      page = Math.min(Math.max(page, 0), nPages - 1);
      const rows = shown.slice(page * size, (page + 1) * size);
      body.replaceChildren(...rows.map((row) => {
        const line = document.createElement("tr");
        columns.forEach((column, place) => {
          const cell = document.createElement(place ? "td" : "th");
          if (!place) cell.scope = "row";
          line.append(fill(cell, values[column.key][row], column, plain));
        });
        return line;
      }));
      find("page").textContent = "Page " + (page + 1).toLocaleString("en") + " of " + nPages.toLocaleString("en");
      find("previous").disabled = page === 0;
      find("next").disabled = page === nPages - 1;
      root.querySelector(".pager").hidden = nPages === 1;
      find("status").textContent = describe(rows.length, page * size);
    }

    function describe(nVisible, first) {
      const all = nRows.toLocaleString("en") + " " + noun + (nRows === 1 ? "" : "s");
      if (!shown.length) return "None of " + all + " matches.";
      const span = (first + 1).toLocaleString("en") + "\u2013" + (first + nVisible).toLocaleString("en");
      const found = shown.length < nRows ? shown.length.toLocaleString("en") + " found among " + all : all;
      const isCut = isPrinting && nVisible < shown.length;
      return span + " of " + found + (isCut ? "; the others are in the files beside this page" : "");
    }

    headers.forEach((header, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.title = columns[place].meaning;
      button.addEventListener("click", () => sort(columns[place], header.getAttribute("aria-sort") === "ascending"));
      header.replaceChildren(button);
    });
    let waiting = 0;
    find("search").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(select, 120);
    });
    if (find("finding")) find("finding").addEventListener("change", select);
    find("size").addEventListener("change", select);
    find("previous").addEventListener("click", () => { page -= 1; render(); });
    find("next").addEventListener("click", () => { page += 1; render(); });
    addEventListener("beforeprint", () => { clearTimeout(waiting); isPrinting = true; shown = order; page = 0; render(); });
    addEventListener("afterprint", () => { isPrinting = false; select(); });
    root.querySelector(".controls").hidden = false;
    find("page-note").textContent = "; select a heading to sort by it";
    find("page-note").className = "on-screen";
    render();
  }

  document.querySelectorAll("[data-table]").forEach(enliven);
  const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) =>
    target.classList.toggle("is-wide", target.scrollWidth > target.clientWidth + 1)));
  document.querySelectorAll(".scroll").forEach((one) => watcher.observe(one));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
