"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wantsDark.matches);
  const showState = () => button.setAttribute("aria-pressed", String(isDark()));
  const rememberTheme = (theme) => {
    try {
      if (theme) localStorage.setItem("unskew-theme", theme);
      return localStorage.getItem("unskew-theme");
    } catch {
      return null; // the browser may forbid storage to a local file
    }
  };
  const before = rememberTheme();
  if (before === "light" || before === "dark") root.dataset.theme = before;
  showState();
  wantsDark.addEventListener("change", showState);
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    rememberTheme(root.dataset.theme);
    showState();
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
  const showAtCenter = (mark) => {
    const shape = mark.querySelector(".point, .bar, .heat") || mark;
    const box = shape.getBoundingClientRect();
    show(mark, box.left + box.width / 2, box.top);
  };
  document.querySelectorAll(".mark").forEach((mark) => {
    const title = mark.querySelector("title");
    mark.dataset.tip = title.textContent;
    title.textContent = ""; // otherwise the browser shows the same text again
    mark.addEventListener("pointermove", (event) => show(mark, event.clientX, event.clientY));
    mark.addEventListener("pointerleave", hide);
  });
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.querySelectorAll(".drawing").forEach((drawing) => {
    const marks = [...drawing.querySelectorAll(".mark")];
    let current = -1;
    drawing.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      if (!(event.key in steps) || !marks.length) return;
      event.preventDefault();
      const step = steps[event.key];
      if (current < 0) current = step > 0 ? 0 : marks.length - 1;
      else current = (current + step + marks.length) % marks.length;
      showAtCenter(marks[current]);
    });
    drawing.addEventListener("blur", hide);
  });
  addEventListener("scroll", hide, { passive: true });

  addEventListener("beforeprint", () => {
    document.querySelectorAll("details").forEach((details) => (details.open = true));
  });

  const compare = (a, b) => {
    if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1; // missing values stay last
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  document.querySelectorAll("table").forEach((table) => {
    const heads = [...table.querySelectorAll("th")];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = (row) => row.cells[column].dataset.v;
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
