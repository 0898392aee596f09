// What pages do beyond links and forms. They work without it, but for the live tail.
"use strict";

// Examples name this server as the browser reaches it.
for (const each of document.querySelectorAll("[data-origin]")) each.textContent = location.origin;

// Forms leave out what is empty, so that addresses stay short.
for (const form of document.querySelectorAll("form.filters")) {
  form.addEventListener("submit", () => {
    for (const field of form.querySelectorAll("input, select")) {
      if (!field.value) field.disabled = true;
    }
  });
}
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form.filters :disabled")) field.disabled = false;
});

// Ctrl+Enter sends the form of an editor.
for (const editor of document.querySelectorAll("textarea[data-editor]")) {
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) editor.form.requestSubmit();
  });
}

// The live tail: ask for the data, and when it differs, for the page, whose live parts are swapped.
const live = document.querySelector("[data-live-address]");
if (live) {
  let seen = live.dataset.liveMark;
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(live.dataset.liveAddress);
        const mark = answer.ok ? (await answer.json()).mark : seen;
        if (mark !== seen) {
          const page = await fetch(location.href);
          const fresh = new DOMParser().parseFromString(await page.text(), "text/html");
          for (const part of document.querySelectorAll("[data-live]")) {
            const other = fresh.getElementById(part.id);
            if (other) part.replaceWith(other);
          }
          seen = mark;
        }
      } catch (error) {
        console.warn("the live tail could not look:", error);
      }
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 2000);
}
