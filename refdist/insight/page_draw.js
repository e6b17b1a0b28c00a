
// The lanes: only what is visible is drawn.
const LANE = 30, LOST = 12, LONGEST = 340, WIDTHS = [1, 2, 4, 8, 14, 24, 40], SMALL = 8;
let SLOT = 24;
const view = at("view"), canvas = view.querySelector("canvas"), pen = canvas.getContext("2d");
function widest(font, texts, least, most) {
  pen.font = font;
  return Math.min(most, [...new Set(texts)].reduce((wide, text) => Math.max(wide, pen.measureText(text).width), least));
}
const headName = i => callName(i).replace(" of variable", "");
// Room for the longest name there is, of lanes and of calls.
const NAMES = widest("bold 13px system-ui, sans-serif", lanes.map(one => one[NAME]), 40, innerWidth / 4) + 18;
const LABEL = NAMES + (innerWidth < 600 ? 8 : widest("11px system-ui, sans-serif", lanes.map(one => shortDevice(one[DEVICE])),
                                                      0, innerWidth / 4) + 16);
const HEAD = 34 + .83 * widest("12px system-ui, sans-serif",
                               groupList.filter(one => one.members.length).map(one => headName(one.members[0])), 60, LONGEST);
const spacer = make("div", {"aria-hidden": "true"});
view.append(spacer);
const middle = s => LABEL + s * SLOT + SLOT / 2 - view.scrollLeft;
const height = n => HEAD + n * LANE + LANE / 2 - view.scrollTop;
const WIDE = {program: 24, run: 22, function: 22, replica: 18, combine: 18, reduce: 16, exchange: 14, merge: 14, update: 10};
let asked = false;
function draw() {
  if (!asked) {
    asked = true;
    requestAnimationFrame(() => { asked = false; drawNow(); });
  }
}
function drawNow() {
  const width = view.clientWidth, high = view.clientHeight, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== width * ratio || canvas.height !== high * ratio) {
    canvas.width = width * ratio;
    canvas.height = high * ratio;
    canvas.style.width = width + "px";
    canvas.style.height = high + "px";
  }
  const style = getComputedStyle(document.documentElement);
  const color = name => style.getPropertyValue("--" + name);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, high);
  const first = Math.max(0, Math.floor(view.scrollLeft / SLOT));
  const end = Math.min(slots, Math.ceil((view.scrollLeft + width - LABEL) / SLOT) + 1);
  const some = Array.from(bySlot.slice(slotStart[first] ?? 0, end < slots ? slotStart[end] : COUNT));
  canvas.dataset.slots = first + "-" + (end - 1);
  canvas.dataset.events = some.length;

  // What each lane is in the middle of, and the lanes themselves.
  const spans = new Set();
  const around = i => { for (; i >= 0 && !spans.has(i); i = parent[i]) if (WIDE[kindOf(i)]) spans.add(i); };
  some.forEach(around);
  lanes.forEach((_, n) => {
    const mine = byLane[n];
    if (!mine.length) return;
    pen.strokeStyle = color("line");
    line(Math.max(LABEL, middle(slot[mine[0]])), height(n), Math.min(width, middle(slot[mine[mine.length - 1]])), height(n));
    // Slots do not go back within a lane, so the last event before the view is found by bisection.
    let low = 0, up = mine.length;
    while (low < up) { const half = (low + up) >> 1; if (slot[mine[half]] < first) low = half + 1; else up = half; }
    if (low) around(mine[low - 1]);
  });
  for (const i of [...spans].sort((a, b) => a - b)) {
    const stop = endOf[i] < 0 ? byLane[lane[i]][byLane[lane[i]].length - 1] : endOf[i];
    if (slot[stop] < first - 1) continue;
    const left = Math.max(0, middle(slot[i]) - 7), right = Math.min(width + 9, middle(slot[stop]) + 7);
    const tall = WIDE[kindOf(i)];
    pen.fillStyle = color("span");
    pen.strokeStyle = endOf[i] >= 0 && get(endOf[i], "how") !== "returned" || endOf[i] < 0 ? color("bad") : color("column");
    pen.lineWidth = .7;
    pen.beginPath();
    pen.roundRect(left, height(lane[i]) - tall / 2, Math.max(8, right - left), tall, 4);
    pen.fill();
    pen.stroke();
    if (endOf[i] < 0 && right <= width) cross(right + LOST, height(lane[i]), color("bad"));
  }

  // Rendezvous join the lanes, and bytes move between them.
  const seen = new Set();
  for (const i of some) {
    const found = groupList[groupOf[i]];
    if (!found || seen.has(found) || kindOf(i) === "receive" || kindOf(i) === "combine" && found.members.length) continue;
    seen.add(found);
    const rows = found.members.map(one => lane[one]);
    pen.strokeStyle = found.bad ? color("bad") : color("column");
    pen.lineWidth = found.bad ? 4 : 2;
    const x = middle(found.slot);
    line(x, height(Math.min(...rows)), x, height(Math.max(...rows)));
  }
  const moved = new Set();
  for (const i of some) {
    if (kindOf(i) !== "transfer") continue;
    const from = laneOfDevice.get(get(i, "source")) ?? lane[i], to = laneOfDevice.get(get(i, "destination")) ?? lane[i];
    const key = slot[i] + " " + from + " " + to;
    if (from !== to && !moved.has(key)) { moved.add(key); arrow(middle(slot[i]), height(from), height(to), color("moved")); }
  }

  for (const i of some)
    if (SLOT >= SMALL || kindOf(i) === "error" || nansOf(i)) glyph(i, middle(slot[i]), height(lane[i]), color);
  if (COUNT) {
    const x = middle(slot[current]);
    pen.strokeStyle = color("text");
    pen.lineWidth = 1;
    pen.setLineDash([3, 3]);
    line(x, HEAD, x, high);
    pen.setLineDash([]);
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.arc(x, height(lane[current]), 10, 0, 7);
    pen.stroke();
  }
  heads(seen, width, color);
  labels(width, high, color);
  const all = at("overview").clientWidth, seenFrom = view.scrollLeft / (slots * SLOT || 1);
  at("seen").style.left = seenFrom * all + "px";
  at("seen").style.width = Math.max(3, Math.min(1, (width - LABEL) / (slots * SLOT || 1)) * all) + "px";
}
/** All of the recording in one strip: how much happens, and where something is wrong. */
function overview() {
  const box = at("overview"), canvas = box.querySelector("canvas"), width = Math.max(1, box.clientWidth), high = 30;
  canvas.width = width;
  canvas.height = high;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const counts = new Int32Array(width), marks = new Array(width).fill("");
  for (let i = 0; i < COUNT; i++) {
    const x = Math.min(width - 1, Math.floor(slot[i] / slots * width));
    counts[x]++;
    if (bad.has(i) || kindOf(i) === "error") marks[x] = "bad";
    else if (!marks[x] && nansOf(i)) marks[x] = "odd";
  }
  const most = counts.reduce((a, b) => Math.max(a, b), 1);
  for (let x = 0; x < width; x++) {
    pen.fillStyle = style.getPropertyValue("--" + (marks[x] || "column"));
    const tall = marks[x] ? high : Math.ceil(counts[x] / most * (high - 6));
    pen.fillRect(x, high - tall, marks[x] ? 2 : 1, tall);
  }
}
function zoom(by) {
  const next = WIDTHS[WIDTHS.indexOf(SLOT) + by];
  if (!next) return;
  SLOT = next;
  at("narrower").disabled = SLOT === WIDTHS[0];
  at("wider").disabled = SLOT === WIDTHS[WIDTHS.length - 1];
  spacer.style.width = LABEL + slots * SLOT + "px";
  if (COUNT) view.scrollLeft = slot[current] * SLOT - (view.clientWidth - LABEL) / 2;
  draw();
}
function line(x, y, toX, toY) {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(toX, toY);
  pen.stroke();
}
function cross(x, y, color) {
  pen.strokeStyle = color;
  pen.lineWidth = 3;
  line(x - 5, y - 5, x + 5, y + 5);
  line(x - 5, y + 5, x + 5, y - 5);
}
function arrow(x, from, to, color) {
  const down = Math.sign(to - from), bend = x + 9 * down;
  pen.strokeStyle = pen.fillStyle = color;
  pen.lineWidth = 1.4;
  pen.beginPath();
  pen.moveTo(x, from + 3 * down);
  pen.quadraticCurveTo(bend, (from + to) / 2, x, to - 5 * down);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x, to - 2 * down);
  pen.lineTo(x - 4, to - 9 * down);
  pen.lineTo(x + 4, to - 9 * down);
  pen.fill();
}
function glyph(i, x, y, color) {
  const name = kindOf(i), nan = nansOf(i) > 0;
  pen.fillStyle = pen.strokeStyle = nan ? color("odd") : bad.has(i) ? color("bad") : color("text");
  pen.lineWidth = 1.6;
  pen.beginPath();
  if (name === "error") return cross(x, y, color("bad"));
  if (name === "meet" || name === "reduce") { pen.arc(x, y, 5, 0, 7); pen.fill(); }
  else if (name === "receive" || name === "return") { pen.arc(x, y, 4, 0, 7); pen.stroke(); }
  else if (name === "exchange") { pen.moveTo(x - 6, y); pen.lineTo(x, y - 6); pen.lineTo(x + 6, y); pen.lineTo(x, y + 6); pen.fill(); }
  else if (name === "write" || name === "variable") {
    pen.rect(x - 4, y - 4, 8, 8);
    if (name === "write") pen.fill(); else pen.stroke();
  } else if (name === "read") { pen.arc(x, y, 2, 0, 7); pen.fill(); }
  else if (name === "schedule") { pen.moveTo(x - 4, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x - 4, y + 5); pen.closePath(); pen.stroke(); }
  else if (name === "step") { pen.moveTo(x - 4, y - 5); pen.lineTo(x + 5, y); pen.lineTo(x - 4, y + 5); pen.fill(); }
  else if (name === "print" || name === "warning") {
    pen.font = "bold 14px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText(name === "print" ? "“" : "!", x, y + (name === "print" ? 9 : 5));
  }
  if (nan) {
    pen.font = "bold 9px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.fillText("NaN", x, y - 7);
  }
}
function heads(seen, width, color) {
  pen.fillStyle = color("back");
  pen.fillRect(0, 0, width, HEAD - 6);
  pen.font = "12px system-ui, sans-serif";
  pen.textAlign = "left";
  let free = -Infinity;
  for (const found of [...seen].sort((a, b) => a.slot - b.slot)) {
    // An exchange that a rendezvous leads to has its name.
    if (!found.members.length || found.exchange && groupOf[parent[found.members[0]]] >= 0) continue;
    const x = middle(found.slot) + 4, name = headName(found.members[0]);
    if (x < free && !found.bad) continue;
    free = x + 13;
    pen.fillStyle = found.bad ? color("bad") : color("text");
    pen.save();
    pen.translate(x, HEAD - 10);
    pen.rotate(-Math.PI / 3.2);
    pen.fillText(fitting(name, LONGEST), 0, 0);
    pen.restore();
  }
}
/** A text, or as much of it as there is room for. */
function fitting(text, room) {
  if (pen.measureText(text).width <= room) return text;
  while (text && pen.measureText(text + "…").width > room) text = text.slice(0, -1);
  return text + "…";
}
function labels(width, high, color) {
  pen.fillStyle = color("back");
  pen.fillRect(0, 0, LABEL - 6, high);
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  line(LABEL - 6, 0, LABEL - 6, high);
  pen.save();
  pen.beginPath();
  pen.rect(0, HEAD - 6, LABEL - 8, high);
  pen.clip();
  pen.textAlign = "left";
  lanes.forEach(([, replica, device], n) => {
    pen.font = (replica === null ? "bold " : "") + "13px system-ui, sans-serif";
    pen.fillStyle = color("text");
    pen.fillText(fitting(laneName(n), NAMES - 12), replica === null ? 4 : 10, height(n) + 4);
    if (device && LABEL > NAMES + 8) {
      pen.fillStyle = color("soft");
      pen.font = "11px system-ui, sans-serif";
      pen.fillText(fitting(shortDevice(device), LABEL - NAMES - 12), NAMES, height(n) + 4);
    }
  });
  pen.restore();
}
function reveal() {
  if (!COUNT) return;
  const x = slot[current] * SLOT, y = lane[current] * LANE, room = view.clientWidth - LABEL;
  if (x < view.scrollLeft + SLOT || x > view.scrollLeft + room - 3 * SLOT) view.scrollLeft = x - room / 2;
  if (y < view.scrollTop || y > view.scrollTop + view.clientHeight - HEAD - LANE)
    view.scrollTop = y - (view.clientHeight - HEAD) / 2;
  draw();
}
