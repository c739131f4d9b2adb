// Pages renew themselves: when a cycle has come, the same page is asked for again, and its <main> takes the place of what is shown. Whoever reads in peace presses "hold still"; nothing is
// renewed under who types, selects, or looks elsewhere. The age of what is shown runs on meanwhile. Without this script pages stand still, and say how old they were.
"use strict";
(() => {
  const rest = 10; // seconds between two renewals, at least
  const old = 60; // seconds after which the age stands out
  const now = () => performance.now() / 1000;
  const main = () => document.getElementById("main");
  const controls = (root) => [...root.querySelectorAll("a[href], button, input, textarea, summary, [tabindex]")];
  let shown = now(), due = false, busy = false;

  const hold = document.createElement("button");
  hold.type = "button";
  hold.textContent = "hold still";
  hold.setAttribute("aria-pressed", "false");
  hold.addEventListener("click", () => {
    const pressed = hold.getAttribute("aria-pressed") !== "true";
    hold.setAttribute("aria-pressed", String(pressed));
    tick();
  });
  document.querySelector("header").append(hold);

  // As package ui says ages.
  const say = (s) => s < 120 ? s + " s" : s < 7200 ? Math.floor(s / 60) + " min" : s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";

  const inUse = () => {
    const at = document.activeElement, selected = getSelection();
    return document.hidden || hold.getAttribute("aria-pressed") === "true" || selected && !selected.isCollapsed ||
      at && /^(INPUT|TEXTAREA|SELECT)$/.test(at.tagName) || [...main().querySelectorAll("input, textarea")].some((e) => e.value !== e.defaultValue);
  };

  const renew = async () => {
    busy = true;
    due = false;
    try {
      const answer = await fetch(location.href);
      if (!answer.ok || answer.redirected) {
        due = answer.status === 429 || answer.status >= 500;
        shownAt = now(); // not at once again; the age tells that nothing has come
        return;
      }
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
      if (!next || inUse()) {
        due = true;
        return;
      }
      const before = main(), focus = controls(before).indexOf(document.activeElement);
      const open = [...before.querySelectorAll("details")].map((d) => d.open);
      const scrolled = [...before.querySelectorAll(".wide")].map((d) => d.scrollLeft);
      before.replaceWith(next);
      next.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || false; });
      next.querySelectorAll(".wide").forEach((d, i) => { d.scrollLeft = scrolled[i] || 0; });
      if (focus >= 0) controls(next)[focus]?.focus({ preventScroll: true });
      shown = shownAt = now();
    } catch { // the role is away: the age tells
      due = true;
      shownAt = now();
    } finally {
      busy = false;
    }
  };

  let shownAt = now();
  const tick = () => {
    for (const e of document.querySelectorAll(".ago")) {
      const s = Math.floor(Number(e.dataset.age) + now() - shown);
      e.textContent = say(s);
      e.parentElement.classList.toggle("old", s >= old);
    }
    if (due && !busy && now() - shownAt >= rest && !inUse()) renew();
  };
  setInterval(tick, 1000);

  const listen = () => {
    const source = new EventSource("/events");
    source.addEventListener("cycle", () => { due = true; });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 30000); // there was no room, or the viewer is known no more
    });
  };
  listen();
})();
