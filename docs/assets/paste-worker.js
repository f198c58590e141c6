// Runs attn-doctor in the browser, in a worker of its own: Pyodide and the engine lie beside it.
// It receives {text, site} and answers {page} or {error}; {ready: true} says that it is loaded.
const folder = new URL("paste/", self.location.href);

async function load() {
  const [{ loadPyodide }, engine] = await Promise.all([
    import(new URL("pyodide.mjs", folder).href),
    fetch(new URL("engine.zip", folder)).then((answer) => answer.arrayBuffer()),
  ]);
  const python = await loadPyodide({ indexURL: folder.href });
  python.unpackArchive(engine, "zip", { extractDir: "/engine" });
  python.runPython("import sys; sys.path.insert(0, '/engine')");
  const paste = python.pyimport("paste");
  paste.answer("");
  return paste;
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
