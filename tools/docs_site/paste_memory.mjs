// Starts the engine of the site's first page, explains logs, and keeps Python's memory.
// node paste_memory.mjs PYODIDE ENGINE FILE < JSON list of logs
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import { packed, start } from "../../docs/assets/paste-python.js";

const [, pyodide, engine, file] = process.argv.splice(1); // no path of this machine is kept
const logs = JSON.parse(fs.readFileSync(0, "utf8")); // first, since Pyodide also reads it
const files = fs
  .readdirSync(engine, { recursive: true, withFileTypes: true })
  .filter((one) => one.isFile())
  .map((one) => path.join(one.parentPath, one.name))
  .sort()
  .map((one) => ["/engine/" + path.relative(engine, one), new Uint8Array(fs.readFileSync(one))]);
const python = await start(pathToFileURL(path.resolve(pyodide)).href + "/", files);
python.runPython("import sys; sys.path.insert(0, '/engine'); sys.dont_write_bytecode = True");
const paste = python.pyimport("paste");
for (const log of logs) paste.answer(log).destroy();
python.runPython("import gc; gc.collect()");
const memory = python.makeMemorySnapshot();
fs.writeFileSync(file, gzipSync(Buffer.concat(packed(files, memory)), { level: 9 }));
