// A testee for refdist's conformance suite, to begin with: it answers cases, one JSON object on each line.
//
// Put calls of your implementation in place of the first part. The second part carries out the steps of a case; what
// it does not know yet it answers with `skip`, and the end of a run lists that: there you see what comes next.
"use strict";
const HAS = ["OneDevice", "Mirrored", "Central", "all_reduce"]; // cases that need anything else are not sent

// What goes wrong: a kind (value, type, context, ...; "skip": this testee lacks something), and a message.
class Failure extends Error {
  constructor(kind, message) { super(message); this.kind = kind; }
}
const fail = (kind, message) => { throw new Failure(kind, message); };

// The implementation: arrays of float32 and int32 with one dimension or none, and replicas that are asynchronous
// functions. Integers without a dtype are BigInt and floats are numbers, so that 1 and 1.0 differ.
class Tensor {
  constructor(dtype, shape, data) {
    const rounded = dtype === "float32" ? Math.fround : (x) => BigInt.asIntN(32, x);
    Object.assign(this, { dtype, shape, data: data.map(rounded) });
  }
}
class PerReplica {
  constructor(parts) { this.parts = parts; }
}

function constant(value) {
  const numbers = Array.isArray(value) ? value : [value];
  const types = [...new Set(numbers.map((number) => typeof number))].join();
  const dtype = { bigint: "int32", number: "float32" }[types] ?? fail("skip", "arrays of other values");
  return new Tensor(dtype, Array.isArray(value) ? [numbers.length] : [], numbers);
}

// The replicas of one `run`; those that run come to each call with an array.
class Run {
  constructor(count) { Object.assign(this, { count, running: count, waiting: [], errors: [] }); }

  allReduce(op, value) {
    if (op !== "SUM") fail("skip", "reduce ops other than SUM");
    const array = value instanceof Tensor ? value : constant(value);
    return new Promise((resolve, reject) => { this.waiting.push({ array, resolve, reject }); this.combine(); });
  }

  combine() {
    if (this.waiting.length < this.running) return;
    const calls = this.waiting.splice(0), arrays = calls.map((call) => call.array), [first] = arrays;
    const differs = ({ dtype, shape }) => dtype !== first.dtype || String(shape) !== String(first.shape);
    const [kind, message] = calls.length < this.count ? ["context", "another replica does not come to this call"]
      : arrays.some(differs) ? ["value", "the dtypes or shapes of the replicas differ"] : [];
    if (kind) return calls.forEach((call) => call.reject(new Failure(kind, message)));
    const sums = first.data.map((_, at) => arrays.map((array) => array.data[at]).reduce((a, b) => a + b));
    calls.forEach((call) => call.resolve(new Tensor(first.dtype, first.shape, sums)));
  }

  async replica(i, body, args) {
    try {
      return await body(i, this, args.map((arg) => (arg instanceof PerReplica ? arg.parts[i] : arg)));
    } catch (error) {
      this.errors.push(error);
    } finally {
      this.running -= 1;
      this.combine();
    }
  }
}

async function run(count, body, args = []) {
  const started = new Run(count);
  const results = await Promise.all([...Array(count).keys()].map((i) => started.replica(i, body, args)));
  const error = started.errors.find(({ kind }) => kind === "skip") ?? started.errors[0];
  if (error) throw error;
  if (!results.every((result) => result instanceof Tensor)) fail("skip", "replicas that return anything but arrays");
  return count === 1 ? results[0] : new PerReplica(results);
}

// The steps of a case. `i` is the number of the replica that carries them out, in a `run`; both are left out outside.
function known(description, ...keys) {
  for (const key of Object.keys(description)) if (!keys.includes(key)) fail("skip", `the key ${key}`);
}

class Program {
  constructor(replicas) { this.replicas = replicas; }

  async steps(steps = [], values, i, running) {
    for (const step of steps) {
      known(step, "call", "method", "get", "operator", "args", "kwargs", "id", "is");
      const { args = [], kwargs = {}, id, is } = step;
      const kind = ["call", "method", "get", "operator"].find((key) => key in step);
      const passed = [...args, ...Object.values(kwargs)].map((tree) => this.value(tree, values));
      const result = await this.step([kind, step[kind], ...Object.keys(kwargs)].join(" "), passed, i, running);
      if (is !== undefined && JSON.stringify(asResult(result)) !== JSON.stringify(is)) throw new Error("another way");
      values.set(id, result);
    }
  }

  step(name, args, i, running) {
    if (name === "call tf.constant" && args.length === 1) return constant(args[0]);
    if (name === "call tf.distribute.get_replica_context" && running) return running;
    if (name === "method all_reduce" && args[0] === running && args.length === 3) {
      return running.allReduce(args[1], args[2]);
    }
    if (name === "get replica_id_in_sync_group" && args[0] === running) return BigInt(i);
    if (name === "operator int" && typeof args[0] === "bigint") return args[0];
    if (/^method run( args)?$/.test(name) && args[0] === this && !running) {
      if (args.length === 3 && !Array.isArray(args[2])) fail("value", "the arguments are not in a list");
      return run(this.replicas, ...args.slice(1));
    }
    return fail("skip", name);
  }

  value(tree, values) {
    const [[kind, content]] = tree !== null && typeof tree === "object" ? Object.entries(tree) : [["literal", tree]];
    const kinds = {
      literal: () => content, ref: () => values.get(content),
      int: () => BigInt(content), ints: () => content.map(BigInt), float: () => content, floats: () => content,
      list: () => content.map((item) => this.value(item, values)), tuple: () => kinds.list(),
      function: () => (i, running, args) => this.call(content.bodies, new Map(values), i, running, args),
      name: () => (content === "strategy" ? this : fail("skip", `the name ${content}`)),
    };
    return kinds[kind] ? kinds[kind]() : fail("skip", `the value ${kind}`);
  }

  async call(bodies, values, i, running, args) {
    const body = bodies.find(({ replica = i }) => replica === i);
    if ("replica" in body) bodies.splice(bodies.indexOf(body), 1);
    known(body, "replica", "parameters", "steps", "returns");
    const { parameters = [], steps, returns = null } = body;
    if (parameters.length !== args.length) fail("type", "another number of arguments");
    parameters.forEach((id, at) => values.set(id, args[at]));
    await this.steps(steps, values, i, running);
    return this.value(returns, values);
  }
}

// A value as a result.
function asResult(value) {
  if (value instanceof PerReplica) return { per_replica: value.parts.map(asResult) };
  if (typeof value === "bigint") return { int: Number(value) };
  if (!(value instanceof Tensor)) fail("skip", "other results than arrays and integers");
  const data = value.data.map(Number);
  if (data.some((x) => !Number.isFinite(x) || Object.is(x, -0))) fail("skip", "numbers that JSON lacks");
  return { dtype: value.dtype, shape: value.shape, data };
}

async function answer({ strategy, observe, programs, only_python }) {
  if (!programs) return { skip: only_python };
  const program = new Program(strategy.replicas), values = new Map(), pairs = [];
  for (const { statement, steps, value = null } of programs[0]) {
    try {
      await program.steps(steps, values);
      if (observe.includes(statement)) pairs.push([statement, asResult(program.value(value, values))]);
    } catch ({ kind = "crash", message }) {
      if (kind === "skip") return { skip: message };
      pairs.push([statement, { error: kind, message }]);
      if (!observe.includes(statement)) break;
    }
  }
  return { answers: [pairs] };
}

(async () => {
  for await (const line of require("readline").createInterface({ input: process.stdin })) {
    const { id, case: asked } = JSON.parse(line); // the first line asks nothing: the suite says who it is
    const message = asked ? { id, ...await answer(asked) } : { protocol: 1, name: "mine", version: "0.1", has: HAS };
    process.stdout.write(`${JSON.stringify(message)}\n`);
  }
})();
