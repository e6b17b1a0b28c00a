
// The panels: what is true at the current event.
/** A summary of an array in words and numbers. */
function shown(k) {
  const one = data.summaries[k];
  return make("div", {}, make("span", {class: "soft"}, typeName(k) + " "), one[TEXT],
              one[NANS] ? make("b", {class: "bad"}, " " + one[NAN_TEXT]) : null);
}
const MOST = 60;
function several(list) {
  return list.length ? [...list.slice(0, 8).map(shown), list.length > 8 ? make("div", {class: "soft"},
    "and " + (list.length - 8) + " more") : null] : "–";
}
function head(...names) {
  return make("thead", {}, make("tr", {}, names.map(name => make("th", {scope: "col"}, name))));
}
function fill(table, names, rows) {
  table.replaceChildren(head(...names), make("tbody", {}, rows.map(({cells, changed, bad}) =>
    make("tr", {class: (changed ? "changed " : "") + (bad ? "bad" : "")},
         cells.map((cell, n) => n ? make("td", {}, cell) : make("th", {scope: "row"}, cell))))));
}

/** The place in the program where a lane is now; null where it is not in its function. */
function placeOf(n) {
  let i = byLane[n][last(byLane[n], current)];
  if (i === undefined || kindOf(i) === "end" && ["run", "replica", "program"].includes(kindOf(get(i, "of")))) return null;
  for (; i >= 0; i = parent[i]) {
    const from = kindOf(i) === "receive" || kindOf(i) === "end" ? get(i, "of") : i;
    const places = get(from, "site");
    if (places && places.length) return {places, error: kindOf(i) === "error"};
  }
  return null;
}
let shownFile = null;
const files = Object.keys(data.sources);
function showSource() {
  const found = lanes.map((_, n) => placeOf(n));
  const own = found[lane[current]] || found.find(Boolean);
  const wanted = own ? own.places.find(one => data.sources[fileOf(one)]) : undefined;
  const file = wanted ? fileOf(wanted) : shownFile ?? files[0];
  if (file === undefined) return;
  showFile(file);
  at("file").value = file;
  at("source").querySelectorAll(".at").forEach(one => { one.className = ""; one.firstChild.replaceChildren(); });
  const whose = new Map();
  found.forEach((one, n) => {
    // The program's own lane says where run was called; its replicas say more.
    const place = one && one.places.find(some => fileOf(some) === file);
    if (place) whose.set(lineOf(place), [...(whose.get(lineOf(place)) || []), n]);
  });
  for (const [k, some] of whose) {
    const row = at("source").firstChild.children[k - 1];
    if (!row) continue;
    row.className = "at";
    const replicas = some.filter(n => lanes[n][REPLICA] !== null).map(n => lanes[n][REPLICA]);
    const name = replicas.length ? "replica " + ranges(replicas)
      : workers > 1 ? tasksOf(some) : laneName(some[0]);
    row.firstChild.append(some.some(n => found[n].error) ? make("b", {}, name) : name);
    row.firstChild.title = some.map(laneName).join(", ");
  }
  const row = wanted && at("source").firstChild.children[lineOf(wanted) - 1];
  if (row) {
    const box = at("source");
    if (row.offsetTop < box.scrollTop + 20 || row.offsetTop > box.scrollTop + box.clientHeight - 60)
      box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }
}
function showFile(file) {
  if (file === shownFile) return;
  shownFile = file;
  const lines = data.sources[file].replace(/\n$/, "").split("\n");
  at("source").replaceChildren(make("ol", {}, lines.map((text, k) => make("li", {}, make("span", {class: "who"}),
    make("span", {class: "number", "aria-hidden": "true"}, String(k + 1)), text))));
}
/** Whole numbers in short: 0-3, 5. */
function ranges(list) {
  const parts = [];
  for (const one of [...list].sort((a, b) => a - b)) {
    const before = parts[parts.length - 1];
    if (before && before[1] === one - 1) before[1] = one; else parts.push([one, one]);
  }
  return parts.map(([a, b]) => a === b ? a : a + "-" + b).join(", ");
}

/** The rendezvous or exchange that the current event belongs to. */
function callOf(i) {
  for (; i >= 0; i = parent[i]) {
    if (groupOf[i] >= 0) return groupList[groupOf[i]];
    if (kindOf(i) === "end" && groupOf[get(i, "of")] >= 0) return groupList[groupOf[get(i, "of")]];
  }
  return null;
}
/** The last event of a kind in the lane of an event before it; -1 where there is none. */
function before(i, name) {
  const here = byLane[lane[i]];
  let n = last(here, i);
  while (n >= 0 && kindOf(here[n]) !== name) n--;
  return n < 0 ? -1 : here[n];
}
const inSpans = list => list.map(([a, b]) => a === b ? a : a + "-" + b).join(", ");
/** Which rows a replica had when a run began, those of the last element of a dataset; null where that is not known. */
function lastRows(run, replica) {
  const step = run < 0 || kindOf(run) !== "run" ? -1 : before(run, "step"), rows = step < 0 ? null : get(step, "rows");
  const own = rows && rows[replica - get(run, "first")];
  return own ? make("div", {class: "soft"}, own.length ? "its last rows: " + inSpans(own) : "it had no rows") : null;
}
/** Whose each array is that a `reduce` is given: what `run` has returned is in the order of its replicas. */
function contributors(of) {
  const run = before(of, "run"), replicas = run < 0 ? 0 : get(run, "replicas");
  if (kindOf(of) !== "reduce" || !replicas || get(of, "contributed").length % replicas) return n => "contributed " + n;
  return n => {
    const replica = get(run, "first") + n % replicas;
    return [make("div", {}, "replica " + replica + " contributes"), lastRows(run, replica)].filter(Boolean);
  };
}
/** What a `reduce`, a read or the end of a function has: arrays of one event. */
function showArrays(i) {
  const of = kindOf(i) === "return" && parent[i] >= 0 && kindOf(parent[i]) === "reduce" ? parent[i] : i;
  const name = get(of, "contributed") ? contributors(of) : null;
  const rows = [["contributed", of], ["received", i], ["returned", i]].flatMap(([field, one]) =>
    (get(one, field) || []).slice(0, MOST).map((k, n, all) => ({changed: false, cells: [
      field === "contributed" ? name(n) : all.length > 1 ? field + " " + n : field, shown(k)]})));
  at("call").hidden = !rows.length;
  at("call-title").textContent = rows.length ? WORDS[kindOf(of)](of) : "";
  at("call-title").className = "";
  if (rows.length) fill(at("call").querySelector("table"), ["array", "value"], rows);
}
function showCall() {
  const found = callOf(current);
  if (["reduce", "return", "read"].includes(kindOf(current))) return showArrays(current);
  at("call").hidden = !found || !found.members.length;
  if (at("call").hidden) return;
  const one = found.members[0];
  at("call-title").textContent = (found.exchange ? "Exchange " + get(one, "exchange") + " between workers"
    : "Rendezvous " + get(one, "rendezvous")) + (found.bad ? ": not carried out" : "");
  at("call-title").className = found.bad ? "bad" : "";
  const unlike = new Set(found.members.map(i => callName(i) + typeNames(get(i, "contributed")))).size > 1;
  const rows = found.members.map(i => {
    const got = receiveOf.get(i), here = i <= current, places = get(i, "site");
    const who = [laneName(lane[i]), found.exchange ? null : lastRows(parent[parent[i]] ?? -1, lanes[lane[i]][REPLICA])];
    return {changed: i === current || got === current, bad: found.bad && here, cells: [who.filter(Boolean), here
      ? [make("div", {}, callName(i)), make("div", {class: "soft"}, places.length ? shortPlace(places[0]) : "")]
      : "on its way", here ? several(get(i, "contributed")) : "",
      found.exchange ? "" : got !== undefined && got <= current ? several(get(got, "received")) : "–"]};
  });
  rows.push(...(found.exchange ? absentWorkers(found) : absent(found)));
  fill(at("call").querySelector("table"), ["who", unlike ? "what and where (not alike)" : "what and where", "contributed",
    found.exchange ? "" : "got"], rows);
}
/** The workers that did not come to an exchange. */
function absentWorkers(found) {
  if (!found.bad) return [];
  const here = new Set(found.members.map(i => lanes[lane[i]][WORKER]));
  return lanes.flatMap(([worker, replica], n) => replica !== null || here.has(worker) || here.add(worker) && false ? []
    : [{bad: true, cells: [tasksOf([n]), "never arrives", "–", ""]}]);
}
/** The replicas of the run that did not come to a rendezvous. */
function absent(found) {
  const one = found.members[0];
  if (kindOf(parent[one]) !== "replica" || !found.bad) return [];
  const here = new Set(found.members.map(i => lane[i]));
  return lanes.flatMap((_, n) => {
    const began = byLane[n].find(i => kindOf(i) === "replica" && parent[i] === parent[parent[one]]);
    if (began === undefined || here.has(n)) return [];
    const how = endOf[began] < 0 ? "" : get(endOf[began], "how");
    return [{bad: true, cells: [laneName(n), "never arrives" + (how === "returned" ? ": its function has returned" :
      how === "raised" ? ": its function has raised" : ""), "–", "–"]}];
  });
}

function showVariables() {
  const rows = [];
  let more = 0;
  for (const {event, copies} of variables.values()) {
    if (event > current) continue;
    const devices = get(event, "devices") || [], groups = new Map();
    copies.forEach((copy, c) => {
      const n = last(copy.events, current);
      if (n < 0) return;
      const key = copy.values[n] + " " + (copy.events[n] === current);
      if (!groups.has(key)) groups.set(key, {value: copy.values[n], changed: copy.events[n] === current, which: []});
      groups.get(key).which.push(c);
    });
    const differ = new Set([...groups.values()].map(one => one.value)).size > 1 &&
      ["AUTO", "ON_WRITE"].includes(get(event, "synchronization"));
    for (const {value, changed, which} of groups.values()) {
      if (rows.length >= MOST) { more++; continue; }
      const where = which.length < 3 ? which.map(c => devices[c]).filter(Boolean).map(shortDevice).join(", ") : "";
      rows.push({changed, cells: [get(event, "variable") + (workers > 1 ? ", " + tasksOf([lane[event]]) : ""),
        [make("div", {}, copies.length === 1 ? "the only one" : (which.length > 1 ? "copies " : "copy ") + ranges(which)),
         make("div", {class: "soft"}, where), differ ? make("b", {class: "bad"}, "not equal") : null], shown(value)]});
    }
  }
  fill(at("values"), ["variable", "copies", "value"], rows);
  if (!rows.length) at("values").replaceChildren(make("caption", {class: "soft"}, "None was created or written until here."));
  if (more) at("values").append(make("caption", {class: "soft"}, "and " + more + " more rows"));
}

const ROW = 26;
function showList() {
  const box = at("list"), list = box.firstElementChild;
  list.style.height = matching.length * ROW + "px";
  const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4);
  const rows = [];
  for (let n = first; n < Math.min(matching.length, first + Math.ceil(box.clientHeight / ROW) + 8); n++) {
    const i = matching[n], button = make("button", {type: "button", tabindex: i === current ? "0" : "-1",
      ...(i === current ? {"aria-current": "true"} : {})}, make("span", {class: "soft"}, String(id[i]) + " "),
      make("span", {class: bad.has(i) || kindOf(i) === "error" ? "bad" : nansOf(i) ? "odd" : ""}, words(i)));
    button.onclick = () => go(i);
    const row = make("li", {"aria-setsize": matching.length, "aria-posinset": n + 1}, button);
    row.style.top = n * ROW + "px";
    rows.push(row);
  }
  list.replaceChildren(...rows);
}
function show() {
  if (!COUNT) {
    at("now").textContent = "Nothing was recorded.";
    return draw();
  }
  const position = last(matching, current), said = "Event " + id[current] + " of " + COUNT.toLocaleString("en") + ": " +
    words(current);
  at("slider").value = Math.max(0, position);
  at("slider").setAttribute("aria-valuetext", said);
  at("now").textContent = said.length > 300 ? said.slice(0, 300) + "…" : said;
  at("back").disabled = position <= 0 && matching[0] >= current;
  at("on").disabled = position >= matching.length - 1;
  const name = kindOf(current), told = [["step", step[current]], ["run", run[current]],
    ["time", (time[current] / 1000).toFixed(3) + " ms"]];
  if (name === "step") get(current, "counts").forEach((count, n) => told.push(["rows of part " + n, count +
    (get(current, "rows") ? ": " + inSpans(get(current, "rows")[n]) : "")]));
  if (name === "variable") for (const one of ["type", "strategy", "synchronization", "aggregation"])
    told.push([one, get(current, one)]);
  at("detail").textContent = (name === "error" || name === "warning" || name === "print" ? get(current, "text") + "\n\n" : "") +
    told.map(([one, value]) => one + ": " + value).join("\n") + (get(current, "site") || []).map(place => "\n" + place).join("");
  for (const one of curves) one.update();
  showCall();
  showVariables();
  showSource();
  const box = at("list");
  if (position * ROW < box.scrollTop || position * ROW > box.scrollTop + box.clientHeight - ROW)
    box.scrollTop = position * ROW - box.clientHeight / 2;
  showList();
  draw();
}

// What is there from the beginning, and what the reader does.
/** A curve, thinned out to what the eye can tell apart: of each column its smallest and its largest number. */
function drawnCurve([name, differences, numbers]) {
  const events = summed(differences), finite = numbers.filter(one => typeof one === "number");
  const low = finite.reduce((a, b) => Math.min(a, b), Infinity), high = finite.reduce((a, b) => Math.max(a, b), -Infinity), end = numbers.length - 1 || 1;
  const x = n => 4 + n / end * 592, y = value => high > low ? 74 - (value - low) / (high - low) * 64 : 42;
  const columns = new Map();
  numbers.forEach((value, n) => {
    if (typeof value !== "number") return;
    const column = columns.get(Math.round(x(n))) || [n, n];
    if (value < numbers[column[0]]) column[0] = n;
    if (value > numbers[column[1]]) column[1] = n;
    columns.set(Math.round(x(n)), column);
  });
  const path = [...columns.values()].flatMap(([a, b]) => a === b ? [a] : [Math.min(a, b), Math.max(a, b)])
    .map(n => x(n).toFixed(1) + "," + y(numbers[n]).toFixed(1)).join(" ");
  const drawing = at("curve").content.firstElementChild.cloneNode(true), [points, line] = drawing.children;
  points.setAttribute("points", path);
  numbers.forEach((value, n) => {
    if (typeof value === "number" || n && typeof numbers[n - 1] !== "number") return;
    const mark = document.createElementNS(drawing.namespaceURI, "circle");
    for (const [key, at] of [["cx", x(n)], ["cy", 8], ["r", 4]]) mark.setAttribute(key, at);
    drawing.append(mark);
  });
  const number = value => typeof value === "number" ? Number(value.toPrecision(6)).toString() : value;
  const caption = make("figcaption", {}, make("b", {}, name), make("span", {class: "soft"}, " " +
    plural(numbers.length, "number") + (finite.length ? ", " + number(low) + " to " + number(high) : "") +
    ", at first " + number(numbers[0]) + ", "), make("span", {}, ""));
  drawing.onclick = event => {
    const box = drawing.getBoundingClientRect();
    const n = Math.round(((event.clientX - box.left) / box.width * 600 - 4) / 592 * end);
    choose(events[Math.max(0, Math.min(numbers.length - 1, n))]);
  };
  const figure = make("figure", {}, caption, drawing);
  return {figure, update() {
    const n = Math.max(0, last(events, current));
    line.setAttribute("x1", x(n));
    line.setAttribute("x2", x(n));
    caption.lastChild.textContent = "here " + number(numbers[n]);
  }};
}
const FEW = 4, curves = data.curves.map(drawnCurve);
/** Goes to an event, also where the search leaves it out. */
function choose(event) {
  if (last(matching, event) < 0 || matching[last(matching, event)] !== event) {
    document.querySelector("form").reset();
    filter();
  }
  go(event);
}
function choices(select, list) { at(select).append(...list.map(([value, text]) => make("option", {value}, text))); }
choices("kind", [...new Set(kind)].map(k => kinds[k]).sort().map(name => [name, name]));
choices("worker", [...new Map(lanes.map((one, n) => [one[WORKER], tasksOf([n])]))]);
// A worker may also have run a strategy of its own, whose first replica has the number of another worker's.
const replicas = [...new Set(lanes.map(one => one[REPLICA]).filter(one => one !== null))].sort((a, b) => a - b);
choices("replica", replicas.map(n => [n, "replica " + n]));
choices("file", files.map(file => [file, shortFile(file)]));
at("worker").parentElement.hidden = workers < 2;
at("curves").hidden = !curves.length;
at("few").append(...curves.slice(0, FEW).map(one => one.figure));
at("rest").hidden = curves.length <= FEW;
at("rest").firstChild.textContent = (curves.length - FEW) + " more";
at("rest").lastChild.append(...curves.slice(FEW).map(one => one.figure));
at("about").textContent = [plural(COUNT, "event"), plural(data.workers, "worker"), plural(replicas.length, "replica"),
  plural(variables.size, "variable")].join(", ");
at("legend").textContent = "● arrives at a rendezvous or reduces, ○ goes on or returns, ◆ exchange between workers, ■ write, · read, □ new variable, " +
  "▶ element of a dataset, ▷ a function is scheduled, “ printed, ✕ error; green: bytes move between devices; red: not carried out";
at("standing-out").hidden = !data.findings.length;
at("findings").append(...data.findings.map(([event, wrong, text]) => {
  const button = make("button", {type: "button", class: wrong ? "wrong" : ""},
    make("span", {class: "soft"}, "event " + id[event] + " "), text.length > 1000 ? text.slice(0, 1000) + "…" : text);
  button.onclick = () => choose(event);
  return make("li", {}, button);
}));
spacer.style.width = LABEL + slots * SLOT + "px";
spacer.style.height = HEAD + lanes.length * LANE + "px";
canvas.style.position = "sticky";
// The canvas takes no room of its own.
canvas.style.marginBottom = "-100%";
view.style.height = HEAD + lanes.length * LANE + 20 + "px";
view.addEventListener("scroll", draw, {passive: true});
view.addEventListener("click", event => {
  const box = view.getBoundingClientRect();
  const s = Math.floor((event.clientX - box.left - LABEL + view.scrollLeft) / SLOT);
  const n = Math.floor((event.clientY - box.top - HEAD + view.scrollTop) / LANE);
  if (s < 0 || s >= slots || n < 0 || n >= lanes.length) return;
  const here = Array.from(bySlot.slice(slotStart[s], slotStart[s + 1])).filter(i => lane[i] === n);
  const found = here.find(i => kindOf(i) !== "end") ?? here[0];
  if (found !== undefined) go(found);
});
addEventListener("resize", () => { overview(); draw(); });
at("overview").onclick = event => {
  const box = at("overview").getBoundingClientRect(), s = Math.floor((event.clientX - box.left) / box.width * slots);
  if (COUNT) choose(bySlot[Math.min(COUNT - 1, slotStart[Math.max(0, Math.min(slots - 1, s))])]);
};
at("narrower").onclick = () => zoom(-1);
at("wider").onclick = () => zoom(1);
view.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1 : -1);
}, {passive: false});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { overview(); draw(); });
at("list").addEventListener("scroll", showList, {passive: true});
at("back").onclick = () => stepBy(-1);
at("on").onclick = () => stepBy(1);
at("slider").addEventListener("input", () => stepTo(Number(at("slider").value)));
at("file").addEventListener("input", () => showFile(at("file").value));
for (const name of ["search", "kind", "worker", "replica"]) at(name).addEventListener("input", filter);
document.querySelector("form").addEventListener("submit", event => event.preventDefault());
document.addEventListener("keydown", event => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.altKey || event.metaKey) return;
  const act = {ArrowLeft: () => stepBy(-1), ArrowRight: () => stepBy(1), Home: () => stepTo(0),
               End: () => stepTo(matching.length - 1)}[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});
filter();
overview();
performance.mark("built");
setTimeout(learnSlowly, 0);
