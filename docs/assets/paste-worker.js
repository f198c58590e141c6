// Runs attn-doctor in the browser, in a worker of its own: Pyodide and the engine lie beside it.
// It receives {text, site} and answers {page} or {error}; {ready: true} says that it is loaded.
import { resume } from "./paste-python.js";

const folder = new URL("paste/", self.location.href);

async function load() {
  const python = await resume(folder.href, fetch(new URL("engine.bin", folder)));
  return python.pyimport("paste");
}

const loaded = load();
loaded.then(
  () => self.postMessage({ ready: true }),
  (error) => self.postMessage({ error: String(error) }),
);

self.onmessage = async ({ data }) => {
  try {
    const answer = (await loaded).answer(data.text, data.site);
    const [json, page] = answer.toJs();
    answer.destroy();
    self.postMessage({ json, page });
  } catch (error) {
    self.postMessage({ error: String(error) });
  }
};
