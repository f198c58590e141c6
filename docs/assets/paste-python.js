// Python with the engine that explains pasted logs. The build of the site starts it once and keeps
// its memory; a browser goes on from there, in a fraction of the time.

/**
 * Starts Python.
 * @param {string} folder the address of Pyodide's files, with a slash at the end
 * @param {Promise<[string, Uint8Array][]>} files path and content of the engine's files
 * @param {Promise<Uint8Array>} [memory] of a started Python; without it, memory can be kept
 */
export async function start(folder, files, memory) {
  const modules = [import(`${folder}pyodide.mjs`), import(`${folder}pyodide.asm.mjs`)];
  const [{ loadPyodide }, { default: create }] = await Promise.all(modules);
  const createPyodideModule = async (settings) => {
    const [written, kept] = await Promise.all([files, memory]);
    settings.preRun.push((module) => write(module, written));
    const module = await create(settings);
    if (kept) prepare(module, kept);
    return module;
  };
  const { protocol, pathname } = new URL(folder);
  return loadPyodide({
    indexURL: protocol === "file:" ? decodeURIComponent(pathname) : folder, // Node.js wants a path
    createPyodideModule,
    ...(memory ? { _loadSnapshot: memory } : { _makeSnapshot: true }),
  });
}

// Compiled modules are loaded before Python starts: at the same place of the memory each time, and
// of the table of functions, which is longer in some browsers.
function write({ FS, loadWebAssemblyModule, preloadedWasm, wasmTable }, files) {
  wasmTable.grow(-wasmTable.length & 4095);
  for (const [path, content] of files) {
    FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
    FS.writeFile(path, content, { canOwn: true });
    if (path.endsWith(".so")) {
      preloadedWasm[path] = loadWebAssemblyModule(content, { nodelete: true }, path, {});
    }
  }
}

// Makes room for a kept memory. How Python calls functions depends on the browser, so that the
// memory takes the pointer for it from the new one.
function prepare(module, kept) {
  const { HEAP32, HEAPU8, __PyRuntime, __PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET } = module;
  const place = __PyRuntime + HEAP32[__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET / 4];
  const [, header] = new Uint32Array(kept.buffer, kept.byteOffset, 2);
  kept.set(HEAPU8.subarray(place, place + 4), header + place);
  if (kept.length > HEAPU8.length) module.growMemory(kept.length);
}

/** The parts of a file to keep: a table of contents, the memory and the engine's files. */
export function packed(files, memory) {
  const sizes = files.map(([path, content]) => [path, content.length]);
  const table = new TextEncoder().encode(JSON.stringify({ memory: memory.length, sizes }));
  const head = new Uint8Array(aligned(4 + table.length));
  new DataView(head.buffer).setUint32(0, table.length);
  head.set(table, 4);
  return [head, memory, ...files.map(([, content]) => content)];
}

/** The files and the memory in the body of a response, which has what `packed` made, compressed. */
export async function unpacked(body) {
  const stream = body.pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0);
  const table = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  let place = aligned(4 + length);
  const next = (size) => bytes.subarray(place, (place += size));
  const memory = next(table.memory);
  return { memory, files: table.sizes.map(([path, size]) => [path, next(size)]) };
}

/** Starts Python from a response, which may still be on its way. */
export function resume(folder, response) {
  const kept = response.then(({ body }) => unpacked(body));
  return start(folder, kept.then(({ files }) => files), kept.then(({ memory }) => memory));
}

const aligned = (size) => Math.ceil(size / 16) * 16;
