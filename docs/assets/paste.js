// The field for a log on the first page. A worker on this page explains it; nothing is sent.
const field = document.querySelector("#paste");
const LARGEST = 50e6; // characters; a browser's memory is the limit

if (field) {
  const script = document.querySelector("script[src*='assets/paste.js']").src;
  const site = new URL("../", script).href;
  const [input, button, status, shown] = ["textarea", "button", "[role=status]", ".paste-answer"]
    .map((name) => field.querySelector(name));
  const root = shown.attachShadow({ mode: "open" });
  let worker, page = "", started = 0;

  // The answer has the colours of the site, which may differ from those of the system.
  const show = () => {
    const dark = document.body.getAttribute("data-md-color-scheme") === "slate";
    const style = page.replace("screen and (prefers-color-scheme:dark)", dark ? "screen" : "not all");
    root.innerHTML = `${style}<style>.foot, .head h1 { display: none !important }
      .attn-doctor.attn-doctor { border-radius: .2rem; padding-bottom: 1rem; font-size: .8rem }</style>`;
  };
  new MutationObserver(show).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });

  const receive = ({ data }) => {
    if (data.error) {
      status.textContent = `The log could not be explained here: ${data.error.trim().split("\n").pop()}`;
    } else if (data.page) {
      page = data.page;
      show();
      status.textContent = `Explained in ${((performance.now() - started) / 1000).toFixed(1)} s.`;
      field.dataset.json = data.json;
    }
    button.disabled = Boolean(!data.error && !data.page && started);
  };
  const start = () => {
    if (worker) return worker;
    worker = new Worker(new URL("assets/paste-worker.js", site), { type: "module" });
    worker.onmessage = receive;
    worker.onerror = (event) => receive({ data: { error: event.message || "the worker did not start" } });
    return worker;
  };
  const explain = () => {
    const text = input.value;
    if (!text.trim()) {
      status.textContent = "Paste a log first.";
      return;
    }
    if (text.length > LARGEST) {
      status.textContent = "The log is too large for a browser: run attn-doctor explain FILE.";
      return;
    }
    started = performance.now();
    button.disabled = true;
    status.textContent = "Reading the log…";
    start().postMessage({ text, site });
  };

  input.addEventListener("focus", start, { once: true });
  input.addEventListener("pointerenter", start, { once: true });
  input.addEventListener("paste", () => setTimeout(explain));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) explain();
  });
  input.addEventListener("drop", async (event) => {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    input.value = await file.text();
    explain();
  });
  button.addEventListener("click", explain);
}
