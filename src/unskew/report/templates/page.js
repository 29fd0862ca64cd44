"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches);
  const told = () => button.setAttribute("aria-pressed", String(isDark()));
  const stored = (theme) => {
    try {
      if (theme) localStorage.setItem("unskew-theme", theme);
      return localStorage.getItem("unskew-theme");
    } catch {
      return null; // a page from disk may have no storage
    }
  };
  const before = stored();
  if (before === "light" || before === "dark") root.dataset.theme = before;
  told();
  wantsDark.addEventListener("change", told);
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored(root.dataset.theme);
    told();
  });

  const tip = document.getElementById("tip");
  const hide = () => {
    tip.hidden = true;
    document.querySelectorAll(".mark.on").forEach((mark) => mark.classList.remove("on"));
  };
  const show = (mark, x, y) => {
    hide();
    mark.classList.add("on");
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(12, Math.min(x - box.width / 2, innerWidth - box.width - 12)) + "px";
    tip.style.top = (y - box.height - 14 < 8 ? y + 18 : y - box.height - 14) + "px";
  };
  const centre = (mark) => {
    const shape = mark.querySelector(".point, .bar, .heat") || mark;
    const box = shape.getBoundingClientRect();
    show(mark, box.left + box.width / 2, box.top);
  };
  document.querySelectorAll(".mark").forEach((mark) => {
    const title = mark.querySelector("title");
    mark.dataset.tip = title.textContent;
    title.textContent = ""; // or the browser would show it a second time
    mark.addEventListener("pointermove", (event) => show(mark, event.clientX, event.clientY));
    mark.addEventListener("pointerleave", hide);
  });
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.querySelectorAll(".drawing").forEach((drawing) => {
    const marks = [...drawing.querySelectorAll(".mark")];
    let at = -1;
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (!(event.key in steps) || !marks.length) return;
      event.preventDefault();
      at = at < 0 ? (steps[event.key] > 0 ? 0 : marks.length - 1) : (at + steps[event.key] + marks.length) % marks.length;
      centre(marks[at]);
    });
    drawing.addEventListener("blur", hide);
  });
  addEventListener("scroll", hide, { passive: true });

  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));

  const compare = (a, b) => {
    if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1; // what is missing stays last
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  document.querySelectorAll("table").forEach((table) => {
    const heads = [...table.querySelectorAll("th")];
    heads.forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[place].dataset.v;
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => {
          const order = compare(value(a), value(b));
          return down && value(a) !== "" && value(b) !== "" ? -order : order;
        });
        table.tBodies[0].append(...rows);
      });
    });
  });
})();
