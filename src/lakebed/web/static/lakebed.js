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

// The live tail begins and ends with its box.
for (const box of document.querySelectorAll("form.filters input[name=live]")) {
  box.addEventListener("change", () => box.form.requestSubmit());
}

// Ctrl+Enter sends the form of an editor.
for (const editor of document.querySelectorAll("textarea[data-editor]")) {
  editor.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) editor.form.requestSubmit();
  });
}

// The live tail: ask for the data, and when it differs, for the page, whose live parts are swapped.
const live = document.querySelector("[data-live-address]");
if (live) {
  const status = document.getElementById("not-live");
  const nameOf = (row) => row.closest("tr").cells[0].textContent + row.querySelector("summary").textContent;
  const ask = async (address) => {
    const answer = await fetch(address, { signal: AbortSignal.timeout(30000) }).catch(() => {
      throw new Error("the server cannot be reached");
    });
    if (!answer.ok || answer.redirected) throw new Error(`the server answered ${answer.redirected ? "with another page" : answer.status}`);
    return answer;
  };
  const swap = (part, other) => {
    const open = new Set([...part.querySelectorAll("details[open]")].map(nameOf));
    const at = part.contains(document.activeElement) && document.activeElement.closest("details");
    const focused = at && nameOf(at);
    part.replaceWith(other);
    for (const row of other.querySelectorAll("details")) {
      const name = nameOf(row);
      row.open = open.has(name);
      if (name === focused) row.querySelector("summary").focus({ preventScroll: true });
    }
  };
  let seen = live.dataset.liveMark;
  const look = async () => {
    if (!document.hidden) {
      try {
        const { mark } = await (await ask(live.dataset.liveAddress)).json();
        if (mark !== seen) {
          const text = await (await ask(location.href)).text();
          const fresh = new DOMParser().parseFromString(text, "text/html");
          for (const part of document.querySelectorAll("[data-live]")) swap(part, fresh.getElementById(part.id));
          seen = mark;
        }
        status.hidden = true;
      } catch (error) {
        status.textContent = `not live: ${error.message}; trying again`;
        status.hidden = false;
      }
    }
    setTimeout(look, 2000);
  };
  setTimeout(look, 2000);
}
