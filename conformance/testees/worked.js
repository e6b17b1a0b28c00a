// A worked testee: a small implementation of tf.distribute in JavaScript, for `--adapter "testee:node worked.js"`.
// It needs node alone, and was written from docs/testing-your-implementation.md and docs/protocol.md. Replicas are
// generators: a collective yields its call, and `Strategy.run` goes on when every replica has yielded one; hence all
// that may call a function of the program is a generator. Integers are BigInt and floats are numbers, so that 1 and 1.0
// differ; dicts are Maps; programs see no name that begins with "_".
const HAS = ["Default", "OneDevice", "Mirrored", "Central", "two strategies", "all_reduce", "all_gather", "merge_call",
  "reduce", "gather", "values from functions", "exceptions"];
class Raised extends Error { constructor(kind, message) { super(message); this.kind = kind; } }
const fail = (kind, message) => { throw new Raised(kind, message); };
const lacks = (what) => fail("unsupported", what);
const attempt = (act) => { try { return { value: act() }; } catch (error) { return { error }; } };
// Arrays: their elements lie in row-major order.
const AS = { float32: (x) => Math.fround(Number(x)), float64: Number, bool: Boolean, string: String,
  int32: (x) => BigInt.asIntN(32, BigInt(x)), int64: (x) => BigInt.asIntN(64, BigInt(x)) };
const OF_LITERALS = { number: "float32", bigint: "int32", boolean: "bool", string: "string" };
class Tensor { constructor(dtype, shape, data) { Object.assign(this, { dtype, shape, data: data.map(AS[dtype]) }); } }
const alike = (values) => values.every((one) => String(one) === String(values[0]));
const range = (n) => [...Array(n).keys()], product = (sizes) => sizes.reduce((a, b) => a * b, 1);
function constant(value, dtype = null) {
  if (value instanceof Tensor) return dtype ? new Tensor(dtype.name, value.shape, value.data) : value;
  const wrong = () => fail(value instanceof PerReplica ? "type" : "value", "neither a number, a bool nor a text");
  if (!Array.isArray(value)) return new Tensor(dtype?.name ?? OF_LITERALS[typeof value] ?? wrong(), [], [value]);
  const rows = value.map((one) => constant(one, dtype)), [first = constant(0, dtype)] = rows;
  if (!alike(rows.map((one) => one.shape))) fail("value", "the rows have different lengths");
  const { dtype: found } = rows.find((one) => one.dtype === "float32") ?? first;
  return new Tensor(found, [rows.length, ...first.shape], rows.flatMap((one) => one.data));
}
function elementwise(f, a, b, dtype) {
  if (a.shape.length && b.shape.length && !alike([a.shape, b.shape])) lacks("operators of two shapes");
  const { shape } = a.shape.length ? a : b, at = (one, i) => one.data[one.shape.length ? i : 0];
  const data = range(product(shape)).map((i) => f(at(a, i), at(b, i))), first = typeof data[0];
  if (/^int/.test(dtype) && first === "number") lacks("floats made of integers");
  return new Tensor(first === "boolean" ? "bool" : dtype, shape, data);
}
function axisOf({ shape }, axis) {
  if (typeof axis !== "bigint") fail(axis && typeof axis === "object" ? "unsupported" : "type", "it is not an integer");
  return range(shape.length).at(Number(axis)) ?? fail("value", `the shape [${shape}] has no axis ${axis}`);
}
function joined(parts, axis) {
  const [{ dtype, shape }] = parts, n = axisOf(parts[0], axis), outer = product(shape.slice(0, n));
  if (!alike(parts.map((one) => [one.dtype, one.shape.filter((_, i) => i !== n)]))) fail("value", "they do not fit");
  const piece = ({ data }, i) => data.slice((i * data.length) / outer, ((i + 1) * data.length) / outer);
  const sizes = shape.map((size, i) => (i === n ? parts.reduce((sum, one) => sum + one.shape[n], 0) : size));
  return new Tensor(dtype, sizes, range(outer).flatMap((i) => parts.flatMap((one) => piece(one, i))));
}
function rows(array, axis) { // the parts of an array along an axis, one for each index
  const { dtype, shape, data } = array, n = axisOf(array, axis), inner = product(shape.slice(n + 1));
  const row = (j) => data.filter((_, i) => Math.floor(i / inner) % shape[n] === j);
  return range(shape[n]).map((j) => new Tensor(dtype, shape.filter((_, i) => i !== n), row(j)));
}
function reduced(op, parts) {
  const [{ dtype, shape }] = parts.length ? parts : lacks("a sum of nothing");
  if (dtype === "bool" || dtype === "string") fail("type", `arrays of ${dtype} cannot be added`);
  if (!alike(parts.map((one) => [one.dtype, one.shape]))) fail("value", "the dtypes or shapes differ");
  const total = parts.reduce((a, b) => elementwise((x, y) => x + y, a, b, dtype));
  if (operation(op) === "SUM") return total;
  return new Tensor(/^int/.test(dtype) ? "float64" : dtype, shape, total.data.map((one) => Number(one) / parts.length));
}
const operation = (op) => /^(SUM|MEAN)$/i.exec(op)?.[0].toUpperCase() ?? fail("value", `${op} is not a ReduceOp`);
// Structures.
class Tuple extends Array {}
class PerReplica { constructor(values) { this._values = Tuple.from(values); } }
const isNest = (value) => Array.isArray(value) || value instanceof Map;
function form(value) {
  if (value instanceof Map) return `{${[...value.keys()].sort().map((key) => `${key}: ${form(value.get(key))}`)}}`;
  return Array.isArray(value) ? `${value.constructor.name}[${[...value].map(form)}]` : "*";
}
function mapped(f, ...all) {
  const [first] = all, under = (at) => mapped(f, ...all.map((one) => (first instanceof Map ? one.get(at) : one[at])));
  if (!alike(all.map(form))) fail("value", "the structures differ");
  if (first instanceof Map) return new Map([...first.keys()].map((key) => [key, under(key)]));
  return Array.isArray(first) ? first.constructor.from(first, (_, i) => under(i)) : f(...all);
}
// What the replicas have, as one structure; what is the same object on all of them remains that object.
const regrouped = (results) => (results.length === 1 ? results[0] : mapped((...parts) => (
  parts[0] instanceof Tensor || parts.some((one) => one !== parts[0]) ? new PerReplica(parts) : parts[0]), ...results));
// The implementation. A context is a ReplicaContext, or across replicas an object that has the strategy only.
let stack = []; // the contexts that the running code is in, the current one last
const now = () => stack[stack.length - 1] ?? OUTSIDE, inReplica = () => now() instanceof ReplicaContext;
const within = (inner, act, outer = stack) => { stack = inner; try { return act(); } finally { stack = outer; } };
function met(calls, count) { // the result for each of the replicas that wait in calls
  if (calls.length < count || !alike(calls.map((one) => one.name))) fail("context", "they are not all in one call");
  if (!alike(calls.map((one) => one.argument))) fail("value", "the replicas have different arguments");
  return calls[0].combine(calls.map((one) => one.given));
}
class Strategy {
  constructor(kind, count) {
    Object.assign(this, { num_replicas_in_sync: BigInt(count), _count: count, _lone: /Default|OneD/.test(kind), kind });
  }
  _across() {
    if (now() !== OUTSIDE && (now().strategy !== this || inReplica())) fail("context", "not across replicas");
  }
  scope() {
    const context = this === DEFAULT ? OUTSIDE : { strategy: this };
    return { _enter: () => { this._across(); stack.push(context); return this; }, _exit: () => stack.pop() };
  }
  run(fn, args = [], kwargs = NONE, options = null) {
    this._across(); if (options) lacks("options");
    if (!Array.isArray(args) || !(kwargs ?? NONE).get) fail("value", "the arguments are not in a list and a dict");
    const given = this._parts([args, kwargs ?? NONE]), errors = [];
    const replicas = given.map((one, i) => new ReplicaContext(this, i, call(fn, ...one)));
    for (let left = replicas; left.length;) {
      const steps = left.map((one) => attempt(() => within(one._in, one._next)));
      errors.push(...steps.flatMap(({ error }) => error ?? []));
      left = left.filter((one, i) => { one._found = steps[i].value?.value; return steps[i].value?.done === false; });
      const { value, error } = attempt(() => met(left.map((one) => one._found), this._count));
      left.forEach((one, i) => { one._next = () => (error ? one._code.throw(error) : one._code.next(value[i])); });
    }
    if (errors.length) throw errors[0];
    return regrouped(replicas.map((one) => one._found));
  }
  _parts(value) {
    const fits = (leaf) => leaf._values.length === this._count || fail("value", "it has another number of replicas");
    const part = (leaf, i) => (leaf instanceof PerReplica && fits(leaf) ? leaf._values[i] : leaf);
    return range(this._count).map((i) => mapped((leaf) => part(leaf, i), value));
  }
  _combined(value, combine) {
    this._across();
    const under = (leaf, ...parts) => combine(parts.map((one) => constant(one)), leaf instanceof PerReplica);
    return mapped(under, value, ...this._parts(value));
  }
  reduce(reduce_op, value, axis) {
    const mean = operation(reduce_op) === "MEAN", counts = axis === null && (this._count === 1 || mean);
    const op = mean && counts && this.kind === "OneDevice" ? "SUM" : reduce_op;
    return this._combined(value, (all, own) => (axis !== null ? reduced(op, rows(joined(all, axis), axis))
      : own || counts ? reduced(op, own ? all : [all[0]]) : fail("value", "it is not distributed")));
  }
  gather(value, axis) { return this._combined(value, (all, own) => joined(own ? all : all.slice(0, 1), axis)); }
  experimental_distribute_values_from_function(value_fn) {
    const values = range(this._count).map((i) => call(value_fn, [new ReplicaContext(this, i)]).next().value);
    return this._lone ? values[0] : mapped((...parts) => new PerReplica(parts), ...values);
  }
}
class ReplicaContext {
  constructor(strategy, i, _code = null) {
    const { num_replicas_in_sync } = strategy, replica_id_in_sync_group = BigInt(i), _next = () => _code.next();
    Object.assign(this, { strategy, num_replicas_in_sync, replica_id_in_sync_group, _i: i, _code, _next, _in: [this] });
  }
  *_meet(name, argument, given, combine) {
    if (now() !== this) fail("context", "this is not the replica that runs");
    return this._code ? yield { name, argument, given, combine } : combine([given])[0];
  }
  _collective(name, argument, value, options, combine) {
    if (options) lacks("options");
    const arrays = mapped((one) => constant(one), this.strategy._parts(value)[this._i]);
    const result = (all) => mapped((...parts) => combine(parts), ...all);
    return this._meet(name, `${argument} ${form(arrays)}`, arrays, (all) => Array(all.length).fill(result(all)));
  }
  all_reduce(reduce_op, value, options = null) {
    return this._collective("all_reduce", operation(reduce_op), value, options, (parts) => reduced(reduce_op, parts));
  }
  all_gather(value, axis, options = null) {
    return this._collective("all_gather", axis, value, options, (parts) => joined(parts, axis));
  }
  merge_call(merge_fn, args = [], kwargs = NONE) {
    const given = [args, kwargs ?? NONE], { strategy } = this;
    return this._meet(`merge_call of ${merge_fn?.label}`, form(given), given, (values) => {
      const [merged, named] = regrouped(values);
      return strategy._parts(within([{ strategy }], () => call(merge_fn, [strategy, ...merged], named).next().value));
    });
  }
}
const NONE = new Map(), DEFAULT = new Strategy("Default", 1), OUTSIDE = new ReplicaContext(DEFAULT, 0);
// What programs find by name. They name arguments, too, so parameters are read off the source of a function.
const NAMES = { "tf.constant": constant, "tf.distribute.ReduceOp.SUM": "SUM", "tf.distribute.ReduceOp.MEAN": "MEAN",
  "tf.distribute.get_replica_context": () => (inReplica() ? now() : null),
  "tf.distribute.in_cross_replica_context": () => !inReplica(),
  "tf.distribute.get_strategy": () => now().strategy, "tf.distribute.has_strategy": () => now().strategy !== DEFAULT };
for (const name of Object.keys(AS)) NAMES[`tf.${name}`] = { name };
function* call(f, args, kwargs = NONE, of = null) {
  if (typeof f !== "function") fail("type", "it is not a function");
  if (f.label) return yield* f(args, kwargs);
  const parameters = /\(([^)]*)/.exec(f)[1].match(/\w+( = [^,]+)?/g) ?? [];
  const names = parameters.map((one) => one.split(" ")[0]);
  const given = names.map((name, i) => (i < args.length ? args[i] : kwargs.get(name)));
  const missing = given.some((one, i) => one === undefined && names[i] === parameters[i]);
  const unknown = given.filter((one) => one !== undefined).length < args.length + kwargs.size;
  if (missing || unknown) fail("type", `the parameters are (${parameters})`);
  const found = f.apply(of, given);
  return found?.next ? yield* found : found;
}
const number = (value) => (value instanceof Tensor && value.data.length === 1 ? value.data[0]
  : value === null || typeof value !== "object" ? value : fail("type", "it is not a number"));
const truth = (value) => (isNest(value) ? (value.size ?? value.length) > 0 : Boolean(number(value)));
const operator = (f) => (a, b) => { // of numbers and arrays; a number takes the dtype of the array beside it
  const scalars = (x, y) => (typeof x === typeof y ? f(x, y) : f(Number(x), Number(y)));
  const dtypes = [a, b].flatMap((one) => (one instanceof Tensor ? [one.dtype] : []));
  if (isNest(a) || isNest(b) || !alike(dtypes)) lacks("operators of these values");
  return dtypes.length ? elementwise(scalars, constant(a), constant(b), dtypes[0]) : scalars(number(a), number(b));
};
function element(value, index) {
  if (!(value instanceof Map || (Array.isArray(value) && typeof index === "bigint"))) lacks("this index");
  const found = value instanceof Map ? value.get(index) : value.at(Number(index));
  return found === undefined ? fail("lookup", `there is no [${index}]`) : found;
}
const OPERATORS = { "[]": element, is: (a, b) => a === b, same: (a) => a, bool: truth, not: (a) => !truth(a),
  "+": (a, b) => (Array.isArray(a) && Array.isArray(b) ? a.concat(b) : operator((x, y) => x + y)(a, b)),
  "-": (a, b) => operator((x, y) => x - y)(...(b === undefined ? [0n, a] : [a, b])), "*": operator((a, b) => a * b),
  "/": operator((a, b) => Number(a) / Number(b)), "==": operator((a, b) => a === b), "!=": operator((a, b) => a !== b),
  "<": operator((a, b) => a < b), ">": operator((a, b) => a > b), float: (a) => Number(number(a)),
  int: (a) => BigInt(typeof number(a) === "number" ? Math.trunc(number(a)) : number(a)),
  list: (a) => [...(a instanceof Map ? a.keys() : a)], length: (a) => BigInt(a.size ?? a.length ?? lacks("length")) };
// The steps of a case. `values` has those of a body by their ids; it begins with those of the bodies around it.
const real = (one) => ({ nan: NaN, inf: Infinity, "-inf": -Infinity })[one] ?? Number(one);
const entries = (object) => Object.entries(object ?? {});
class Program {
  constructor(names) { Object.assign(this, { names, kept: new Map(), demanded: [] }); }
  *steps(steps, values) {
    for (const step of steps ?? []) {
      let found;
      try { found = yield* this.step(step, values); } catch (error) {
        if (!step.raises || !error.kind || error.kind === "unsupported") throw error;
        if (error.kind !== step.raises) throw new Error(`${error.message}; ${step.raises} was expected`);
        continue;
      }
      const [seen, expected] = [told(found), step.is].map((one) => JSON.stringify(one));
      if (step.raises || (expected && seen !== expected)) throw new Error(`found ${seen} in ${JSON.stringify(step)}`);
      this.keep(step, found, values);
    }
  }
  keep({ id, keep }, found, values) { values.set(id, found); this.kept.set(keep, found); }
  *step(step, values) {
    if (step.raise) fail(step.raise, "raised by the program");
    if (step.with) {
      const context = this.value(step.with, values), entered = context._enter();
      this.keep(step, entered, values);
      try { yield* this.steps(step.steps, values); } finally { context._exit(); }
      return entered;
    }
    const args = (step.args ?? []).map((one) => this.value(one, values)), [of] = args;
    const kwargs = new Map(entries(step.kwargs).map(([name, one]) => [name, this.value(one, values)]));
    const called = typeof step.call === "string" ? { name: step.call } : step.call;
    if (called) return yield* call(this.value(called, values), args, kwargs);
    const name = step.method ?? step.get, ours = of instanceof Strategy || of instanceof ReplicaContext;
    if (name && ours && name in of) return step.get ? of[name] : yield* call(of[name], args.slice(1), kwargs, of);
    return OPERATORS[step.operator] ? OPERATORS[step.operator](...args) : lacks(`the step ${JSON.stringify(step)}`);
  }
  value(tree, values) {
    if (tree === null || typeof tree !== "object") return tree;
    const [[kind, content]] = entries(tree), all = (items) => items.map((one) => this.value(one, values));
    const kinds = { ref: () => values.get(content), kept: () => this.kept.get(content), int: () => BigInt(content),
      float: () => real(content), ints: () => content.map(BigInt), floats: () => content.map(real),
      list: () => all(content), tuple: () => Tuple.from(all(content)), function: () => this.function(content, values),
      dict: () => new Map(entries(content).map(([key, one]) => [key, this.value(one, values)])),
      name: () => this.names[content] ?? NAMES[content] ?? lacks(content) };
    return kinds[kind] ? kinds[kind]() : lacks(`the value ${JSON.stringify(tree)}`);
  }
  function({ name, bodies }, outer) {
    const waiting = [...bodies], program = this;
    this.demanded.push(waiting);
    return Object.assign(function* called(args, kwargs) {
      const here = inReplica() ? now()._i : null, body = waiting.find(({ replica = here }) => replica === here);
      if (!body) throw new Error(`${name} is called once more than expected`);
      if ("replica" in body) waiting.splice(waiting.indexOf(body), 1);
      const { parameters = [], keywords = {} } = body, names = Object.keys(keywords), values = new Map(outer);
      if (args.length !== parameters.length || !alike([names.sort(), [...kwargs.keys()].sort()])) fail("type", name);
      parameters.forEach((id, i) => values.set(id, args[i]));
      names.forEach((one) => values.set(keywords[one], kwargs.get(one)));
      for (const [key, id] of entries(body.keep)) program.kept.set(Number(key), values.get(id));
      yield* program.steps(body.steps, values);
      return program.value(body.returns ?? null, values);
    }, { label: name });
  }
}
// Results.
function numeral(one) { // JSON has no NaN, infinity and negative zero, and no long integers
  if (typeof one === "bigint") return one <= 2n ** 53n && one >= -(2n ** 53n) ? Number(one) : String(one);
  if (typeof one !== "number" || (Number.isFinite(one) && !Object.is(one, -0))) return one;
  return one === 0 ? "-0.0" : String(one).replace("NaN", "nan").replace("Infinity", "inf");
}
function told(value) {
  if (/bigint|number/.test(typeof value)) return { [typeof value === "number" ? "float" : "int"]: numeral(value) };
  if (value instanceof Tensor) return { dtype: value.dtype, shape: value.shape, data: value.data.map(numeral) };
  if (value instanceof PerReplica) return { per_replica: [...value._values].map(told) };
  if (Array.isArray(value)) return { [value instanceof Tuple ? "tuple" : "list"]: [...value].map(told) };
  if (value instanceof Map) return { dict: Object.fromEntries([...value].map(([key, one]) => [key, told(one)])) };
  return typeof (value ?? null) === "object" && value ? { object: value.constructor.name } : value ?? null;
}
function answer({ strategy: { kind, replicas }, observe, programs, only_python }) {
  if (!programs) return { skip: only_python };
  const strategy = kind === "Default" ? DEFAULT : new Strategy(kind, replicas), values = new Map(), pairs = [];
  const program = new Program({ strategy, other: new Strategy("Mirrored", 2) });
  for (const { statement, steps, value = null } of programs[0]) {
    const { value: result, error } = attempt(() => {
      program.steps(steps, values).next();
      if (program.demanded.flat().some((body) => body.by <= statement)) throw new Error("a function was not called");
      return told(program.value(value, values));
    });
    if (error?.kind === "unsupported") return { unsupported: error.message };
    const said = error ? { error: error.kind ?? "crash", message: error.message } : result;
    if (error || observe.includes(statement)) pairs.push([statement, said]);
    if (error && !observe.includes(statement)) break;
  }
  return { answers: [pairs] };
}
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, case: asked } = JSON.parse(line); // the first line asks nothing
  const said = asked ? { id, ...answer(asked) } : { protocol: 1, name: "worked.js", version: "1", has: HAS };
  process.stdout.write(`${JSON.stringify(said)}\n`);
});
