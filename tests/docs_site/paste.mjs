// Explains each log as the site's first page does, and prints the answers as a JSON list.
// node paste.mjs FOLDER < JSON list of logs
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { resume } from "../../docs/assets/paste-python.js";

const logs = JSON.parse(fs.readFileSync(0, "utf8")); // first, since Pyodide also reads it
const folder = pathToFileURL(path.resolve(process.argv[2])).href + "/";
const response = new Response(fs.readFileSync(new URL("engine.bin", folder)));
const python = await resume(folder, Promise.resolve(response));
const paste = python.pyimport("paste");
// An error of Pyodide itself would print its whole source.
const explained = (log) => {
  try {
    return paste.answer(log);
  } catch (error) {
    throw new Error(error.message);
  }
};
const answers = [];
const seconds = [];
for (const log of logs) {
  const start = process.cpuUsage();
  const answer = explained(log);
  answers.push(JSON.parse(answer.get(0)));
  answer.destroy();
  const { user, system } = process.cpuUsage(start);
  seconds.push((user + system) / 1e6);
}
fs.writeSync(2, `${Math.max(...seconds)} seconds of processor time at most\n`);
console.log(JSON.stringify(answers));
