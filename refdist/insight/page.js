"use strict";
const data = window.recorded;
const at = id => document.getElementById(id);

// The columns; differences become what they are differences of.
function summed(differences) {
  const found = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < found.length; i++) found[i] = sum += differences[i];
  return found;
}
const {id, kind, lane, slot, time, run, step, parent} =
  Object.fromEntries(Object.entries(data.columns).map(([name, column]) => [name, summed(column)]));
const COUNT = id.length, {kinds, lanes, values} = data;
const nth = new Int32Array(COUNT);
{
  const counts = new Int32Array(kinds.length);
  for (let i = 0; i < COUNT; i++) nth[i] = counts[kind[i]]++;
}
const fields = Object.fromEntries(Object.entries(data.fields).map(([name, columns]) => [name, Object.fromEntries(
  Object.entries(columns).map(([field, column]) =>
    [field, {numbers: summed(column.numbers || column.values), indices: !column.numbers}]))]));
const kindOf = i => kinds[kind[i]];
/** A field of an event; undefined where its kind does not have it. */
function get(i, name) {
  const column = (fields[kindOf(i)] || {})[name];
  if (!column) return undefined;
  const found = column.numbers[nth[i]];
  return column.indices ? values[found] : found;
}
const [WORKER, REPLICA, DEVICE, NAME, JOB, TASK] = [0, 1, 2, 3, 4, 5];
const workers = new Set(lanes.map(one => one[WORKER])).size;
const [TYPE, TEXT, NANS, NAN_TEXT] = [0, 1, 2, 3];
/** The position of the last number of an ascending list that is at most `most`; -1 where none is. */
function last(list, most) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= most) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// What is found once: events by lane and by slot, what is open until when, rendezvous, copies of variables.
const byLane = lanes.map(() => []), endOf = new Int32Array(COUNT).fill(-1);
const groups = new Map(), groupOf = new Int32Array(COUNT).fill(-1), groupList = [], variables = new Map();
const bad = new Set(data.bad);
let slots = 0;
function group(i) {
  const name = kindOf(i);
  const key = name === "exchange" ? "x" + get(i, "exchange") : lanes[lane[i]][WORKER] + " " + get(i, "rendezvous");
  let found = groups.get(key);
  if (found === undefined) {
    groups.set(key, found = groupList.length);
    groupList.push({members: [], bad: false, exchange: name === "exchange", slot: slot[i]});
  }
  return found;
}
for (let i = 0; i < COUNT; i++) {
  byLane[lane[i]].push(i);
  slots = Math.max(slots, slot[i] + 1);
  const name = kindOf(i);
  if (name === "end") endOf[get(i, "of")] = i;
  if (["meet", "combine", "receive", "exchange"].includes(name)) {
    groupOf[i] = group(i);
    const found = groupList[groupOf[i]];
    if (name === "meet" || name === "exchange") found.members.push(i);
    if (bad.has(i)) found.bad = true;
  } else if (name === "variable" || name === "write") {
    const key = lanes[lane[i]][WORKER] + " " + get(i, "number"), only = name === "write" ? get(i, "copy") : null;
    // One that was there before the recording is known from its first write.
    if (name === "variable" || !variables.has(key)) variables.set(key, {event: i, copies: []});
    const {copies} = variables.get(key);
    get(i, "copies").forEach((k, n) => {
      const copy = copies[only === null ? n : only] ||= {events: [], values: []};
      copy.events.push(i);
      copy.values.push(k);
    });
  }
}
const receiveOf = new Map();
for (let i = 0; i < COUNT; i++) if (kindOf(i) === "receive") receiveOf.set(get(i, "of"), i);
const bySlot = Array.from({length: COUNT}, (_, i) => i).sort((a, b) => slot[a] - slot[b] || a - b);
const slotStart = new Int32Array(slots + 1).fill(COUNT);
for (let n = COUNT - 1; n >= 0; n--) slotStart[slot[bySlot[n]]] = n;
for (let s = slots - 1; s >= 0; s--) slotStart[s] = Math.min(slotStart[s], slotStart[s + 1]);
const laneOfDevice = new Map(lanes.map((one, n) => [one[DEVICE], n]));

// Words.
function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.flat().filter(one => one !== null));
  return made;
}
/** A function of one argument that computes each answer once: a long recording asks for the same ones again and again. */
function once(compute) {
  const known = new Map();
  return key => {
    let found = known.get(key);
    if (found === undefined) known.set(key, found = compute(key));
    return found;
  };
}
const grouped = once(count => count.toLocaleString("en"));
const plural = (count, word) => grouped(count) + " " + word + (count === 1 ? "" : "s");
const laneName = n => lanes[n][NAME];
/** The tasks of some lanes: "worker 0-2, ps 0". */
const tasksOf = some => [...new Set(some.map(n => lanes[n][JOB]))].map(job => job === "chief" ? job : job + " " +
  ranges([...new Set(some.filter(n => lanes[n][JOB] === job).map(n => lanes[n][TASK]))])).join(", ");
const shortDevice = name => name.replace(/^worker:\d+ /, "");
const typeName = k => values[data.summaries[k][TYPE]];
const typeNames = once(list => list.length > 3 ? plural(list.length, "array") : list.map(typeName).join(", "));
// "file:line", or "Cell In[3], line 5".
const fileOf = place => place.replace(/(:|, line )\d+$/, "");
const lineOf = place => Number(place.match(/\d+$/));
const shortFile = file => file.split(/[\\/]/).pop() || file;
const shortPlace = once(place => shortFile(fileOf(place)) + place.slice(fileOf(place).length));
const callName = i => [get(i, "call"), get(i, "op")].filter(Boolean).join(" ");
const ARRAYS = ["contributed", "received", "returned", "copies"];
const arraysOf = kinds.map(name => ARRAYS.filter(field => (fields[name] || {})[field]));
const nansIn = once(list => list.reduce((some, k) => some + data.summaries[k][NANS], 0));
const nansOf = i => arraysOf[kind[i]].reduce((sum, name) => sum + nansIn(get(i, name)), 0);
const copyOf = i => get(i, "copy") === null ? "" : ", copy " + get(i, "copy");
const copyName = i => get(i, "copy") === null ? "" : ", copy " + get(i, "copy") + " only";
const WORDS = {
  program: i => "begins, one of " + plural(get(i, "workers"), "worker"),
  process: i => "begins as " + tasksOf([lane[i]]),
  run: i => "calls run(" + get(i, "function") + ") on " + plural(get(i, "replicas"), "replica"),
  replica: i => "begins " + get(i, "function"),
  meet: i => "arrives at rendezvous " + get(i, "rendezvous") + ": " + callName(i) +
    (get(i, "contributed").length ? " of " + typeNames(get(i, "contributed")) : ""),
  combine: i => get(i, "call") + " of rendezvous " + get(i, "rendezvous") + " is carried out for " +
    plural(get(i, "replicas"), "replica"),
  receive: i => "goes on" + (get(i, "received").length ? " with " + typeNames(get(i, "received")) : "") +
    " from " + callName(get(i, "of")),
  exchange: i => "arrives at exchange " + get(i, "exchange") + " between workers: " + callName(i),
  merge: i => "merge_call runs " + get(i, "function"),
  update: i => "updates copy " + get(i, "copy"),
  transfer: i => plural(get(i, "bytes"), "byte") + " move from " + get(i, "source") + " to " + get(i, "destination") +
    (get(i, "times") > 1 ? " in " + plural(get(i, "times"), "piece") : ""),
  variable: i => "creates variable " + get(i, "variable") + ": " + typeNames(get(i, "copies").slice(0, 1)),
  write: i => "writes variable " + get(i, "variable") + copyName(i),
  return: i => "returns " + typeNames(get(i, "returned")) + (parent[i] < 0 ? "" : " from " + beginning(parent[i])),
  reduce: i => "calls " + callName(i) + " of " + typeNames(get(i, "contributed")),
  read: i => "reads variable " + get(i, "variable") + copyOf(i),
  schedule: i => "schedules function " + get(i, "scheduled") + ", " + get(i, "function"),
  function: i => "begins function " + get(i, "scheduled") + ", " + get(i, "function"),
  step: i => "takes an element of a dataset: " + get(i, "counts").join(", ") + " rows",
  print: i => "prints " + get(i, "text"),
  warning: i => "warns: " + get(i, "category") + ": " + get(i, "text"),
  error: i => "raises " + get(i, "type") + ": " + get(i, "text"),
  end: i => "ends " + beginning(get(i, "of")) + ": " + get(i, "how"),
};

const beginning = i => ({run: () => "run(" + get(i, "function") + ")", replica: () => get(i, "function"),
  combine: () => get(i, "call"), exchange: () => "exchange " + get(i, "exchange"), update: () => "the update of copy " +
  get(i, "copy"), reduce: () => callName(i), function: () => get(i, "function")}[kindOf(i)] || (() => kindOf(i)))();
function words(i) {
  const nans = nansOf(i), places = get(i, "site") || [];
  return laneName(lane[i]) + " " + WORDS[kindOf(i)](i) + (nans ? " (" + nans + " NaN)" : "") +
    (places.length ? ", " + shortPlace(places[0]) : "");
}

// Which events are stepped through.
let matching = Int32Array.from({length: COUNT}, (_, i) => i), current = 0;
const texts = [];
/** Makes the texts that are searched, up to an event. */
function learn(end) {
  while (texts.length < end) texts.push(words(texts.length).toLowerCase());
}
/** Makes all of them a few at a time, before anybody searches. */
function learnSlowly() {
  learn(Math.min(COUNT, texts.length + 2000));
  if (texts.length < COUNT) setTimeout(learnSlowly, 0);
}
// How long a search may go on, in milliseconds, before the reader gets what was found until there; it looks at the
// clock after so many events.
let PATIENCE = 40, CHUNK = 1000, searches = 0;
/** Keeps the events that the form asks for.  A search through texts goes on after each slice, until another begins. */
function filter() {
  const wanted = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const [k, w, r] = ["kind", "worker", "replica"].map(name => at(name).value);
  const found = [], search = ++searches;
  let i = 0;
  (function slice() {
    if (search !== searches) return;
    const begun = performance.now();
    let end;
    do {
      end = wanted.length ? Math.min(COUNT, i + CHUNK) : COUNT;
      if (wanted.length) learn(end);
      for (; i < end; i++) {
        const [worker, replica] = lanes[lane[i]];
        if ((k === "" || kindOf(i) === k) && (w === "" || worker === Number(w)) &&
            (r === "" || replica === Number(r)) && wanted.every(one => texts[i].includes(one))) found.push(i);
      }
    } while (end < COUNT && performance.now() - begun < PATIENCE);
    matching = Int32Array.from(found);
    at("slider").max = Math.max(0, matching.length - 1);
    at("count").textContent = plural(matching.length, "event") + (end < COUNT ? " in the first " + grouped(end) : "") +
      (matching.length < COUNT ? " of " + grouped(COUNT) : "");
    const nearest = matching[Math.max(0, last(matching, current))];
    if (nearest !== undefined && nearest !== current && (end > current || end === COUNT)) go(nearest);
    else if (end === COUNT) show(); else showList();
    if (end < COUNT) setTimeout(slice, 0);
  })();
}
function stepTo(position) {
  if (matching.length) go(matching[Math.max(0, Math.min(matching.length - 1, position))]);
}
function stepBy(count) {
  const here = last(matching, current);
  // Before an event that does not match comes the last one that does.
  stepTo(here + count + (count < 0 && matching[here] !== current ? 1 : 0));
}
function go(i) {
  current = i;
  show();
  reveal();
}
